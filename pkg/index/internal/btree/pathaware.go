package btree

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/index/internal/nodecache"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Path-aware caching (DEX, section 5.3; nodecache.PathAware): a copy of an inner node stays in the
// cache while its parent's copy leads to it and it leads to cached children. Children are those
// that a copy's slots lead to: copies of inner nodes, and of level 1 frames of the leaf cache,
// which clears a hint when it cools or evicts the leaf.

// PathCache is a leaf cache that cools its leaves.
type PathCache interface {
	// CoolLeaf cools the leaf at a and clears its hint. It is called under the lock of the cache of
	// inner nodes.
	CoolLeaf(hint uint32, a pool.Addr)
}

// paths implements nodecache.Paths.
type paths struct{ leaves PathCache }

// CoolLeaves implements nodecache.Paths.
func (p paths) CoolLeaves(h *nodecache.Head) {
	n := innerOf(h)
	for i := range n.hints {
		if hint := atomic.SwapUint32(&n.hints[i], 0); hint != 0 {
			p.leaves.CoolLeaf(hint, n.children[i])
		}
	}
}

// HasChildren implements nodecache.Paths.
func (paths) HasChildren(h *nodecache.Head) bool {
	n := innerOf(h)
	for i := range n.hints {
		if atomic.LoadUint32(&n.hints[i]) != 0 {
			return true
		}
	}
	for i := range n.kids {
		if n.kids[i].Load() != nil {
			return true
		}
	}
	return false
}

// Cooled implements nodecache.Paths.
func (paths) Cooled(h *nodecache.Head) { innerOf(h).unswizzle() }

// SamplePlaces returns the number of places of which CoolPath takes one.
func (t *Tree) SamplePlaces() int { return t.cache.Places() }

// CoolPath cools the end of a path that begins at the inner node in a place of the cache: from
// there it goes on to a child drawn at random while there is one. If the end is a leaf, it returns
// what the leaf cache noted of it, and the leaf cache cools it. warm reports whether a leaf is
// there and not cooled. If the end is an inner node that has been cooled now, it returns its
// address. Neither: the place is empty, or nothing on the path could be cooled.
func (t *Tree) CoolPath(place int, random func() uint64, warm func(hint uint32, a pool.Addr) bool) (hint uint32, cooled pool.Addr) {
	n := innerOf(t.cache.Any(place))
	if n == nil || n.IsCooled() {
		return 0, pool.Nil
	}
	for {
		if hint = n.warmLeaf(random(), warm); hint != 0 {
			return hint, pool.Nil
		}
		k := n.warmKid(random())
		if k == nil {
			break
		}
		n = k
	}
	if n.Addr == t.root.Load().addr || !t.cache.Cool(&n.Head) {
		return 0, pool.Nil
	}
	return 0, n.Addr
}

// warmLeaf returns the hint of a cached leaf below n, looked for from a random place on; 0 if there
// is none.
func (n *inner) warmLeaf(random uint64, warm func(hint uint32, a pool.Addr) bool) uint32 {
	for i := range n.hints {
		at := (int(random%uint64(len(n.hints))) + i) % len(n.hints)
		if h := atomic.LoadUint32(&n.hints[at]); h != 0 && warm(h, n.children[at]) {
			return h
		}
	}
	return 0
}

// warmKid is warmLeaf for inner nodes.
func (n *inner) warmKid(random uint64) *inner {
	for i := range n.kids {
		if k := n.kids[(int(random%uint64(len(n.kids)))+i)%len(n.kids)].Load(); k != nil && !k.IsCooled() {
			return k
		}
	}
	return nil
}

// EvictCooled drops the copy of an inner node that CoolPath has cooled, unless it was found since.
func (t *Tree) EvictCooled(a pool.Addr) bool { return t.cache.EvictCooled(a) }

// HintAt returns where the leaf cache's hint of the leaf is where the path leads; nil if nowhere,
// or if the cache has dropped the copy that led there.
func (p *Path) HintAt() *uint32 {
	if p.parent == nil || !p.parent.Kept() {
		return nil
	}
	return p.hint()
}
