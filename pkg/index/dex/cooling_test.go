package dex

import (
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
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
	for i := range x.cache.frames {
		f := &x.cache.frames[i]
		var v frame.View
		if f.Addr() == pool.Nil || f.Uses() == 0 || !f.Open(&v) {
			continue
		}
		leaves++
		low := f.LowFence(&v, nil)
		s.b.Begin()
		if readsOf(s, func() { _, _ = s.b.Descend(low) }) > 0 {
			orphans++
		}
		s.b.End()
	}
	return leaves, orphans
}

// TestHintsOfEvictedFrames: a frame has one hint, which is cleared when the leaf is cooled or
// evicted; a hint that leads elsewhere by then stays.
func TestHintsOfEvictedFrames(t *testing.T) {
	x, s := opened(t, index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256, CacheBytes: 64 << 10, Switches: map[string]bool{"frequencies": false, "leafAdmission": false}})
	for n := range uint64(scanned) {
		mustDo(t, s.Upsert(scanKey(n), []byte("a value.")))
	}
	s.b.Begin()
	defer s.b.End()
	p, err := s.b.Descend(scanKey(7))
	mustDo(t, err)
	f := x.cache.locate(&p)
	if f == nil {
		var l slotted.Leaf
		hops := 0
		if _, _, err := s.fetch(&p, &l, scanKey(7), &hops, true); err != nil {
			t.Fatal(err)
		}
		f = x.cache.locate(&p)
	}
	if p.Hint() != uint32(f.ID())+1 || x.cache.paper.up[f.ID()].Load() != p.HintAt() {
		t.Fatalf("the parent leads to frame %d, not to %d", p.Hint()-1, f.ID())
	}
	x.cache.paper.unswizzle(f.ID())
	if p.Hint() != 0 {
		t.Fatal("the parent of a cooled leaf leads to it")
	}
	other := uint32(0)
	x.cache.locate(&p)
	x.cache.paper.up[f.ID()].Store(&other)
	x.cache.locate(&p)
	other = uint32(f.ID()) + 2
	x.cache.paper.up[f.ID()].Store(&other)
	if x.cache.paper.unswizzle(f.ID()); other != uint32(f.ID())+2 {
		t.Error("the hint of another frame was cleared")
	}
}

// BenchmarkAdmission admits leaves to a full cache, in 8 goroutines: what a lookup needs of the
// cache's locks if it finds no frame. One in eight leaves is changed, and must be admitted.
func BenchmarkAdmission(b *testing.B) {
	for _, c := range []struct {
		name string
		off  []string
	}{
		{"ours", nil},
		{"paper", []string{"frequencies"}},
		{"oneQueue", []string{"frequencies", "coolingMap"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			switches := map[string]bool{"entries": false}
			for _, name := range c.off {
				switches[name] = false
			}
			with, err := techniquesOf(switches)
			if err != nil {
				b.Fatal(err)
			}
			const node, leaves = 1024, 20_000
			k, _ := cachesOf(env.Real(), with, leaves/10*(node+frameCost(node/8, with)), node)
			var worker atomic.Uint64
			b.SetParallelism(4) // with two processors
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				r := rand.New(rand.NewPCG(worker.Add(1), 3))
				for pb.Next() {
					a := pool.NewAddr(1, (r.Uint64N(leaves)+1)*node)
					if f := k.find(a); f != nil {
						f.Hit()
						continue
					}
					if f, fresh, err := k.reserve(a, r.IntN(8) == 0, nil); err != nil {
						b.Error(err)
					} else if fresh {
						f.Unlock()
					}
				}
			})
		})
	}
}
