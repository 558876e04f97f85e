package dex

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestPathsAreCached looks keys up and changes them in a cache that is too small for leaves and for
// inner nodes. Path-aware, the cache has the whole path to each leaf that is not cooled; otherwise
// parents are evicted before their leaves. A parent may be evicted for its own leaf, which has no
// frame yet: that may be one in 200. With both policies all values are right.
func TestPathsAreCached(t *testing.T) {
	for _, aware := range []bool{true, false} {
		leaves, orphans := pathsAreCached(t, aware)
		t.Logf("path-aware %v: %d times a leaf, %d times without its parent", aware, leaves, orphans)
		if leaves < 1000 {
			t.Errorf("path-aware %v: only %d leaves were looked at", aware, leaves)
		}
		if aware != (orphans <= leaves/200) {
			t.Errorf("path-aware %v: %d of %d leaves had no parent in the cache", aware, orphans, leaves)
		}
	}
}

func pathsAreCached(t *testing.T, aware bool) (leaves, orphans int) {
	const keys, bound = 20_000, 96 << 10
	x, s := opened(t, index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 512, CacheBytes: bound,
		Switches: map[string]bool{"frequencies": false, "entries": false, "offloading": false, "leafAdmission": false, "pathAware": aware}})
	want := make([]uint64, keys)
	mustDo(t, x.BulkLoad(func(pair func(key, value []byte) bool) error {
		for n := range uint64(keys) {
			if !pair(scanKey(n), binary.LittleEndian.AppendUint64(nil, 0)) {
				break
			}
		}
		return nil
	}, 1))
	r := rand.New(rand.NewPCG(21, 22))
	for i := range 30_000 {
		n := r.Uint64N(keys)
		if r.IntN(4) == 0 {
			want[n]++
			mustDo(t, s.Upsert(scanKey(n), binary.LittleEndian.AppendUint64(nil, want[n])))
		} else if got, err := s.Lookup(scanKey(n), nil); err != nil || binary.LittleEndian.Uint64(got) != want[n] {
			t.Fatalf("key %d is %x, %v, want %d", n, got, err, want[n])
		}
		if i%500 == 0 {
			l, o := x.cachedPaths(s)
			leaves, orphans = leaves+l, orphans+o
		}
	}
	if x.Stats().CacheBytes > bound {
		t.Errorf("the cache has %d bytes", x.Stats().CacheBytes)
	}
	return leaves, orphans
}

// cachedPaths counts the leaves in the cache that have been found since they were READ and are not
// cooled, and those of them to which no path leads in the cache.
func (x *dex) cachedPaths(s *session) (leaves, orphans int) {
	_ = x.cache.Each(func(f *frame.Frame) error {
		var v frame.View
		if f.Addr() == pool.Nil || f.Uses() == 0 || !f.Open(&v) {
			return nil
		}
		leaves++
		low := f.LowFence(&v, nil)
		s.b.Begin()
		if readsOf(s, func() { _, _ = s.b.Descend(low) }) > 0 {
			orphans++
		}
		s.b.End()
		return nil
	})
	return leaves, orphans
}
