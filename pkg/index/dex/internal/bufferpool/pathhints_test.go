package bufferpool

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/slottedtree"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestHintsOfEvictedFrames: a frame has one hint, which is cleared when the leaf is cooled or
// evicted; a hint that leads elsewhere by then stays.
func TestHintsOfEvictedFrames(t *testing.T) {
	k := paperCacheOf(t, env.Real(), 256, 64)
	p := pathToLeaf(t)
	f, fresh, err := k.Reserve(p.Addr(), true, nil)
	if err != nil || !fresh {
		t.Fatal(fresh, err)
	}
	f.Unlock()
	if found := k.Locate(&p); found != f {
		t.Fatalf("the leaf is in frame %d, not in %d", found.ID(), f.ID())
	}
	if p.Hint() != uint32(f.ID())+1 || k.paper.up[f.ID()].Load() != p.HintAt() {
		t.Fatalf("the parent leads to frame %d, not to %d", p.Hint()-1, f.ID())
	}
	k.paper.unswizzle(f.ID())
	if p.Hint() != 0 {
		t.Fatal("the parent of a cooled leaf leads to it")
	}
	other := uint32(0)
	k.Locate(&p)
	k.paper.up[f.ID()].Store(&other)
	k.Locate(&p)
	other = uint32(f.ID()) + 2
	k.paper.up[f.ID()].Store(&other)
	if k.paper.unswizzle(f.ID()); other != uint32(f.ID())+2 {
		t.Error("the hint of another frame was cleared")
	}
}

// pathToLeaf is the path to a leaf of a tree with some, by the copy of its parent.
func pathToLeaf(t *testing.T) btree.Path {
	t.Helper()
	c := pooltest.New(t, pooltest.Options{Provider: "shm", Servers: 1, Chunks: 16})
	x, err := slottedtree.Open(c.Open(t), slottedtree.Config{Options: index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256}, Design: index.Design{Name: "test"}, Cache: keepsNothing{}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := x.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), x.Close()); err != nil {
			t.Error(err)
		}
	})
	key := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n<<32) }
	for n := range uint64(200) {
		if err := s.Upsert(key(n), []byte("a value.")); err != nil {
			t.Fatal(err)
		}
	}
	s.Begin()
	defer s.End()
	p, err := s.Descend(key(7))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// BenchmarkAdmission admits leaves to a full cache, in 8 goroutines: what a lookup needs of the
// cache's locks if it finds no frame. One in eight leaves is changed, and must be admitted.
func BenchmarkAdmission(b *testing.B) {
	for _, c := range []struct {
		name string
		set  func(o *Options)
	}{
		{"ours", func(*Options) {}},
		{"paper", func(o *Options) { o.Paper = true }},
		{"oneQueue", func(o *Options) { o.Paper, o.CoolingMap = true, false }},
	} {
		b.Run(c.name, func(b *testing.B) {
			const node, leaves = 1024, 20_000
			o := testOptions(node, leaves/10)
			c.set(&o)
			k := New(env.Real(), o)
			var worker atomic.Uint64
			b.SetParallelism(4) // with two processors
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				r := rand.New(rand.NewPCG(worker.Add(1), 3))
				for pb.Next() {
					a := pool.NewAddr(1, (r.Uint64N(leaves)+1)*node)
					if f := k.Find(a); f != nil {
						f.Hit()
						continue
					}
					if f, fresh, err := k.Reserve(a, r.IntN(8) == 0, nil); err != nil {
						b.Error(err)
					} else if fresh {
						f.Unlock()
					}
				}
			})
		})
	}
}

// keepsNothing is a LeafCache that keeps nothing.
type keepsNothing struct{}

func (keepsNothing) Claim(*btree.Session, pool.Addr, []byte, []byte, bool) (bool, error) {
	return true, nil
}
func (keepsNothing) Release(pool.Addr)                                 {}
func (keepsNothing) BeforeLoad(*btree.Session) error                   { return nil }
func (keepsNothing) Bound(*btree.Session, []byte, bool) ([]byte, bool) { return nil, true }
func (keepsNothing) Clock() uint64                                     { return 0 }
func (keepsNothing) Offload(*btree.Session, btree.Way) bool            { return false }
func (keepsNothing) Admit(*btree.Session, pool.Addr, []byte, []byte, bool, []byte, uint64) error {
	return nil
}
func (keepsNothing) Copy(*btree.Session, pool.Addr, []byte) (bool, error) { return false, nil }
