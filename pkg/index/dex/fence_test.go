package dex_test

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestLowFences: the fences of the leaves of many keys ascend with them, each is the fence of a run
// of keys, and a range that is given up there is cut between two leaves.
func TestLowFences(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Chunks: 16, ChunkBytes: 1 << 20, Servers: 1, Locks: 4 << 10})
	x, err := dex.Open(c.Open(t), index.Options{Uint64: true, MaxValueBytes: 8, CacheBytes: 8 << 20})
	if err == nil {
		err = x.(index.Partitioned).Take(pool.Holding{Epoch: 1})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	s, err := x.Session()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fences, ok := s.(index.Fences)
	if !ok {
		t.Fatal("sessions do not know fences")
	}
	key := func(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)*1000) }
	const n = 3000
	for i := range n {
		if err := s.Upsert(key(i), []byte("12345678")); err != nil {
			t.Fatal(err)
		}
	}
	var last, middle []byte
	runs := 0
	for i := range n {
		if _, err := s.Lookup(key(i), nil); err != nil {
			t.Fatal(err)
		}
		low, ok := fences.LowFence(key(i), nil)
		if !ok {
			t.Fatalf("key %d was looked up just now, and its leaf is not known", i)
		}
		if bytes.Compare(low, key(i)) > 0 || bytes.Compare(low, last) < 0 {
			t.Fatalf("key %x lies in a leaf from %x on, the one before it in one from %x on", key(i), low, last)
		}
		if !bytes.Equal(low, last) {
			if i > 0 && bytes.Compare(low, key(i-1)) <= 0 {
				t.Fatalf("the leaf of %x begins at %x, but that of %x at %x", key(i), low, key(i-1), last)
			}
			last = low
			if runs++; i < n/2 {
				middle = low
			}
		}
	}
	if runs < 20 || runs > n/4 {
		t.Fatalf("%d leaves of %d keys", runs, n)
	}
	before, err := x.(index.Checker).Check()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.(index.Partitioned).Give(middle, nil); err != nil {
		t.Fatal(err)
	}
	after, err := x.(index.Checker).Check()
	if err != nil || !reflect.DeepEqual(after, before) {
		t.Errorf("the structure was %+v, and after a range was given up at a fence %+v, %v", before, after, err)
	}
	if _, ok := fences.LowFence(key(n-1), nil); ok {
		t.Error("the leaf of a key that was given up is known")
	}
}
