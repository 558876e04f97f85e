package btree

import (
	"sync/atomic"
	"unsafe"

	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/memory"
	"github.com/dmindex/dmindex/pkg/index/internal/nodecache"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Pointer swizzling (DEX section 5.1). A copy of an inner node has, beside the addresses of its
// children, where these are in this client's memory: of inner nodes the copies, of leaves a number
// that a leaf cache gives them. Nothing of it is ever written to a memory server.
//
// A copy that the cache has dropped must not be found by way of its parent: it was dropped since it
// is old, or its bytes are to be somebody else's. So every copy knows the one place that points to
// it, and the cache empties that place when it drops the copy, and the places in a copy with the
// copy; both under the cache's lock. A session that has loaded the pointer before goes on with a
// copy that was dropped at that moment, as it may with what it got from the table. What it follows
// has the child's address, and a stamp that is not below the floor: all that the table checks, too.
//
// The numbers of a leaf cache are hints, which it checks.

// cachedChild is the cached copy of the node at a as child i of n; nil if n does not know of one.
func (n *inner) cachedChild(i int, a pool.Addr, level uint8, floor uint64) *inner {
	if i >= len(n.kids) {
		return nil
	}
	k := n.kids[i].Load()
	if k == nil || k.Addr != a || k.Level() != level || k.Stamp < floor {
		return nil
	}
	k.Found()
	return k
}

// swizzle lets parent know where the copy n of its child i is.
func (t *Tree) swizzle(parent *inner, i int, n *inner) {
	if i >= len(parent.kids) || parent.children[i] != n.Addr || !parent.Kept() || !n.Kept() {
		return
	}
	t.cache.Locked(&parent.Head, &n.Head, func(p, c *nodecache.Head) {
		n := innerOf(c)
		n.unswizzle() // of a copy of the parent that had the child before
		n.place = &innerOf(p).kids[i]
		n.place.Store(n)
	})
}

// unswizzle empties the place that points to n. Under the cache's lock.
func (n *inner) unswizzle() {
	if n.place != nil {
		n.place.Store(nil)
		n.place = nil
	}
}

// unswizzleAll empties all places that point to n, or that n has. Under the cache's lock.
func (n *inner) unswizzleAll() {
	n.unswizzle()
	for i := range n.kids {
		if k := n.kids[i].Load(); k != nil {
			k.unswizzle()
		}
	}
}

// prefetch asks the processor for what a search of n is about to look at.
func (n *inner) prefetch() {
	if len(n.numbers) > 0 {
		memory.Lines(unsafe.Pointer(&n.numbers[0]))
	}
}

// Hint is what the leaf cache noted of the leaf where the path leads; 0 if nothing.
func (p *Path) Hint() uint32 {
	if h := p.hint(); h != nil {
		return atomic.LoadUint32(h)
	}
	return 0
}

// hint is where that is noted; nil if nowhere.
func (p *Path) hint() *uint32 {
	if n := p.parent; n != nil && p.child < len(n.hints) && n.children[p.child] == p.addr {
		return &n.hints[p.child]
	}
	return nil
}

// mostMoved is how many leaves of a copy takeHints looks for in vain.
const mostMoved = 2 * MaxRing

// takeHints gives n, which nobody else knows yet, what is noted of those of its leaves that old
// has: an earlier copy of the node, or of the one that it was split from. Else each change of an
// inner node would make this client search its table for every leaf below. Both have their leaves
// in the same order.
func (n *inner) takeHints(old *inner) {
	if old == nil || len(n.hints) == 0 {
		return
	}
	at, moved := 0, 0
	for i, a := range n.children {
		j := at
		for j < len(old.hints) && old.children[j] != a {
			j++
		}
		switch {
		case j < len(old.hints):
			n.hints[i] = atomic.LoadUint32(&old.hints[j])
			at = j + 1
		case moved == mostMoved:
			return
		default:
			moved++
		}
	}
}

// DescendCached is a descent for key that follows nothing but places, and is no part of an
// operation: no epoch waits for it, and copies may be older than the floor. a is where the leaf
// was, and hint what the leaf cache noted of it; 0 if that is not known. Whoever uses it asks the
// leaf that it finds in this client's memory for its address, and whether its range holds key. Then
// that is the leaf, however old the way to it was.
func (s *Session) DescendCached(key []byte) (a pool.Addr, hint uint32) {
	root := s.t.root.Load()
	n := s.t.cached(root.addr, 0)
	for n != nil && !n.beyond(key, fence.Holding) {
		i := n.child(s.Lay, key)
		if n.Level() == 1 {
			if i < len(n.hints) {
				return n.children[i], atomic.LoadUint32(&n.hints[i])
			}
			return pool.Nil, 0
		}
		if n = n.kids[i].Load(); n != nil {
			n.Found()
			if n.Level() == 1 {
				n.prefetch()
			}
		}
	}
	return pool.Nil, 0
}

// CountCached counts an operation that was no more than DescendCached.
func (s *Session) CountCached() {
	s.Count.Hits++
	s.Counted()
}
