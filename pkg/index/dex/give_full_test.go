package dex

import (
	"errors"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestGiveInFullPool: a Give that finds no memory to divide a leaf leaves the range as it was: its
// keys can be read and changed, its leaves may be merged, and it can be given when there is memory.
func TestGiveInFullPool(t *testing.T) {
	const node = 512
	c := pooltest.New(t, pooltest.Options{Provider: "shm", Chunks: 2, ChunkBytes: 256 << 10})
	open, err := Open(c.Open(t), index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: node, CacheBytes: 1 << 20})
	mustDo(t, err)
	x := open.(*dex)
	t.Cleanup(func() { mustDo(t, x.Close()) })
	mustDo(t, x.Take(pool.Holding{Epoch: 1}))
	s, err := x.newSession()
	mustDo(t, err)
	t.Cleanup(func() { mustDo(t, s.Close()) })
	for n := range uint64(scanned) {
		mustDo(t, s.Upsert(scanKey(n), []byte("first...")))
	}
	var all []pool.Addr // that there are beside
	for {
		a, err := x.pool.Allocate(node, pool.Nil)
		if errors.Is(err, pool.ErrPoolFull) {
			break
		}
		mustDo(t, err)
		all = append(all, a)
	}
	refused := uint64(0)
	for n := uint64(scanned / 2); refused == 0; n++ { // some of these keys begin no leaf
		before := x.ranges.Load()
		_, err := x.Give(scanKey(n), nil)
		if err == nil { // one does
			mustDo(t, x.Take(pool.Holding{Start: scanKey(n), Epoch: 2}))
			continue
		}
		if !errors.Is(err, index.ErrPoolFull) {
			t.Fatal(err)
		}
		refused = n
		if after := x.ranges.Load(); after != before || !after.MayMerge(nil, nil, true) {
			t.Errorf("the ranges were %+v, and are %+v", before, after)
		}
	}
	for n := range uint64(scanned) {
		value, err := s.Lookup(scanKey(n), nil)
		if err != nil || string(value) != "first..." {
			t.Fatalf("key %d is %q: %v", n, value, err)
		}
		mustDo(t, s.Update(scanKey(n), []byte("second..")))
	}
	for n := refused - 20; n < refused+20; n++ { // also where leaves are merged
		mustDo(t, s.Delete(scanKey(n)))
	}
	for _, a := range all {
		x.pool.Free(a, node)
	}
	_, err = x.Give(scanKey(refused), nil)
	mustDo(t, err)
	if err := s.Update(scanKey(refused+20), nil); !errors.Is(err, index.ErrNotOwner) {
		t.Errorf("a key that was given is changed: %v", err)
	}
	mustDo(t, x.Take(pool.Holding{Start: scanKey(refused), Epoch: 3}))
	for n := range uint64(scanned) {
		value, err := s.Lookup(scanKey(n), nil)
		if gone := n >= refused-20 && n < refused+20; gone != errors.Is(err, index.ErrNotFound) || !gone && string(value) != "second.." {
			t.Fatalf("key %d is %q: %v", n, value, err)
		}
	}
}
