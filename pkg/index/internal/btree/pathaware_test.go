package btree

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/nodecache"
	"github.com/dmindex/dmindex/pkg/pool"
)

// watched are copies of inner nodes whose evictions are watched.
type watched struct {
	inners
	paths
	t        *testing.T
	dropping bool // the owner drops a copy, or replaces it by a newer one
	evicted  int
	childful int // of those, that had children
}

// forgetful implements PathCache.
type forgetful struct{}

// CoolLeaf implements PathCache.
func (forgetful) CoolLeaf(uint32, pool.Addr) {}

// Evicted implements nodecache.Owner.
func (w *watched) Evicted(h *nodecache.Head) {
	if !w.dropping {
		w.evicted++
		if w.HasChildren(h) {
			w.childful++
		}
	}
	w.inners.Evicted(h)
}

// TestPathAware puts, swizzles and cools copies at random in a cache that is too small for them. A
// copy with children is not evicted if the cache is path-aware, and is otherwise. Cooling goes to
// the end of a path, and what was cooled and found again is not evicted.
func TestPathAware(t *testing.T) {
	for _, aware := range []bool{true, false} {
		w := pathAware(t, aware)
		if w.evicted < 1000 {
			t.Errorf("path-aware %v: only %d copies were evicted", aware, w.evicted)
		}
		if aware != (w.childful == 0) {
			t.Errorf("path-aware %v: %d of %d evicted copies had children", aware, w.childful, w.evicted)
		}
	}
}

func pathAware(t *testing.T, aware bool) *watched {
	const upper, lower, leaves = 4, 12, 10
	l := testLayout(t, index.Options{Uint64: true, MaxValueBytes: 8})
	random := rand.New(rand.NewPCG(11, 12))
	one := cached(t, l, 64, 1, leaves, 1).memory
	w := &watched{t: t, paths: paths{forgetful{}}}
	k := nodecache.New(env.Real(), w, 24*one, l.NodeBytes*2/3+innerBytes)
	x := &Tree{cache: k}
	x.root.Store(&rootRef{})
	if aware {
		k.PathAware(w)
	}
	at := func(i, j int) pool.Addr { return pool.Addr(i+1)<<20 + pool.Addr(j+1)<<10 }
	version := uint32(1)
	put := func(a pool.Addr, level uint8, children int) *inner {
		version++
		n := cached(t, l, a, level, children, version)
		n.addHints()
		w.dropping = k.Get(a, 0) != nil
		k.Put(&n.Head)
		w.dropping = false
		return n
	}
	var cooled []pool.Addr
	for range 60_000 {
		i, j := random.IntN(upper), random.IntN(lower)
		up := innerOf(k.Get(pool.Addr(i+1)<<20, 0))
		if up == nil {
			up = put(pool.Addr(i+1)<<20, 2, lower)
			for j := range up.children {
				up.children[j] = at(i, j)
			}
		}
		switch n := innerOf(k.Get(at(i, j), 0)); {
		case n == nil:
			n = put(at(i, j), 1, leaves)
			x.swizzle(up, j, n)
		case random.IntN(3) == 0: // a leaf comes
			atomic.StoreUint32(&n.hints[random.IntN(leaves)], uint32(n.Addr))
		case aware: // or a node is cooled
			hint, inner := x.CoolPath(random.IntN(x.SamplePlaces()), random.Uint64, func(h uint32, _ pool.Addr) bool { return h != 0 })
			if hint != 0 {
				leaf := innerOf(k.Get(pool.Addr(hint), 0))
				if leaf == nil {
					t.Fatalf("the parent %x of a leaf is not in the cache", hint)
				}
				for c := range leaf.hints {
					atomic.StoreUint32(&leaf.hints[c], 0)
				}
			}
			if inner != pool.Nil {
				if h := anyCopy(k, inner); h == nil || !h.IsCooled() || w.HasChildren(h) || innerOf(h).place != nil {
					t.Fatalf("%x was cooled: %v", inner, h)
				}
				cooled = append(cooled, inner)
			}
			if len(cooled) > 3 {
				a := cooled[0]
				cooled = cooled[1:]
				h := anyCopy(k, a)
				again := h != nil && random.IntN(2) == 0
				if again {
					h.Found()
				}
				if k.EvictCooled(a) && again {
					t.Fatalf("%x was found again, and evicted", a)
				}
			}
		default:
			k.Drop(nil)
		}
	}
	return w
}

// anyCopy is the cache's copy of the node at a, which is not counted as found.
func anyCopy(k *nodecache.Cache, a pool.Addr) *nodecache.Head {
	for i := range k.Places() {
		if h := k.Any(i); h != nil && h.Addr == a {
			return h
		}
	}
	return nil
}
