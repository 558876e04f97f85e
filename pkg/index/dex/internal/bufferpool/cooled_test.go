package bufferpool

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/pool"
)

// paperCacheOf is a cache of the paper's policy, of about so many frames, in a world.
func paperCacheOf(t *testing.T, e env.Env, node, frames int) *Pool {
	t.Helper()
	o := testOptions(node, frames)
	o.Paper = true
	return New(e, o)
}

// TestCoolsAnotherLeaf: the frame of a leaf that was chosen to be cooled gets another leaf before
// that is done.
func TestCoolsAnotherLeaf(t *testing.T) {
	k := paperCacheOf(t, env.Real(), 256, 64)
	take := func(n uint64) *frame.Frame {
		f, fresh, err := k.Reserve(pool.NewAddr(1, n*256), true, nil)
		if err != nil || !fresh {
			t.Fatalf("leaf %d: fresh %v, %v", n, fresh, err)
		}
		return f
	}
	f := take(1)
	f.Unlock()
	chosen := f.Addr()
	if !f.TryLock() {
		t.Fatal("the frame is locked")
	}
	k.Drop(f)
	if other := take(2); other != f {
		t.Fatalf("leaf 2 has frame %d, not %d", other.ID(), f.ID())
	}
	f.Unlock()
	k.paper.cool(f, chosen)
	if n := k.Forgotten(); n != 0 {
		t.Errorf("%d leaves are cooled, and the cooling map does not have them", n)
	}
	k.paper.cool(f, f.Addr())
	if f.Uses() != 0 || k.Forgotten() != 0 {
		t.Error("the leaf is not cooled, or not in the map")
	}
}

// TestClaimsNoOtherLeaf: the frame of a cooled leaf is freed, or gets another leaf, before it is
// locked to be evicted.
func TestClaimsNoOtherLeaf(t *testing.T) {
	k := paperCacheOf(t, env.Real(), 256, 64)
	f, _, err := k.Reserve(pool.NewAddr(1, 256), true, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.Unlock()
	a := f.Addr()
	k.paper.cool(f, a)
	claimed := func(what string, want bool) {
		if got := k.paper.claim(f, a); got != want || f.IsLocked() != want {
			t.Errorf("%s: claimed %v, locked %v", what, got, !want)
		}
	}
	claimed("cooled", true)
	k.Drop(f)
	claimed("free", false)
	f, _, err = k.Reserve(pool.NewAddr(1, 512), true, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.Unlock()
	f.SetUses(0)
	claimed("another leaf", false)
	f.SetAddr(a)
	f.Hit()
	claimed("found", false)
}

// TestNotWrittenBackNotForgotten: a leaf that cannot be written back now, as the log is slow, is
// evicted later.
func TestNotWrittenBackNotForgotten(t *testing.T) {
	k, late := paperCacheOf(t, env.Real(), 256, 64), errors.New("the log is slow")
	refused := 0
	for n := range uint64(2 * len(k.frames)) {
		f, fresh, err := k.Reserve(pool.NewAddr(1, (n+1)*256), true, func(*frame.Frame) error { return late })
		if err != nil {
			refused++
		} else if fresh {
			f.SetRecLSN(1)
			f.Unlock()
		}
	}
	if n := k.Forgotten(); n != 0 || refused == 0 {
		t.Errorf("%d leaves were not written back; %d are cooled, and the cooling map does not have them", refused, n)
	}
}

// TestNoCooledLeafIsForgotten: on real threads, leaves come, are found and are evicted. In the end
// each cooled one is in the cooling map, and each frame has a leaf or is free.
func TestNoCooledLeafIsForgotten(t *testing.T) {
	const workers, each, node, frames = 8, 60_000, 256, 200
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	e := env.Real()
	k := paperCacheOf(t, e, node, frames)
	g := env.NewWaitGroup(e)
	var came atomic.Uint64
	for w := range workers {
		g.Go("worker", func() {
			r := rand.New(rand.NewPCG(seed, uint64(w)))
			for range each {
				a := pool.NewAddr(1, (r.Uint64N(4*frames)+1)*node)
				if f := k.Find(a); f != nil {
					f.Hit()
					continue
				}
				f, fresh, err := k.Reserve(a, r.IntN(4) == 0, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if !fresh {
					continue
				}
				came.Add(1)
				if r.IntN(16) == 0 {
					k.Drop(f)
				} else {
					f.Unlock()
				}
			}
		})
	}
	g.Wait(env.Forever)
	if n := k.Forgotten(); n != 0 {
		t.Errorf("%d leaves of %d frames are cooled, and the cooling map does not have them", n, len(k.frames))
	}
	free := 0
	for i := range k.frames {
		f := &k.frames[i]
		if f.IsLocked() {
			t.Errorf("frame %d is locked", i)
		}
		if a := f.Addr(); a == 0 {
			free++
		} else if k.Find(pool.Addr(a)) != f {
			t.Errorf("frame %d has leaf %#x, which is not found there", i, a)
		}
	}
	if free != len(k.paper.mu.free) {
		t.Errorf("%d frames have no leaf, and %d are free", free, len(k.paper.mu.free))
	}
	t.Logf("%d leaves came", came.Load())
}
