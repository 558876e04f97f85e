package nodecache

import "github.com/dmindex/dmindex/pkg/pool"

// Path-aware caching (DEX, section 5.3). A copy is not evicted while the cache has children of it.
// What is to be evicted is chosen by the owner, which samples copies (Any), delegates to a child as
// long as there is one, and cools the copy at the end of the path (Cool). A cooled copy that is
// found again is an ordinary one; EvictCooled evicts those that were not.
//
// Where a new copy finds no room, a copy without children is evicted: a cooled one, or the least
// used one of a few. If each has children, the leaves below one of level 1 are cooled, and that one
// is evicted. So every new copy is kept, however seldom it is looked for (lazy admission, section
// 5.4: inner nodes are admitted with probability 1). Counts are not halved: a count of 0 says that
// the copy is cooled.

// Paths is what a path-aware cache asks its owner. All are called under the cache's lock.
type Paths interface {
	// HasChildren reports whether children of the copy are in the cache.
	HasChildren(h *Head) bool

	// CoolLeaves cools all leaves that are children of the copy, which is of level 1.
	CoolLeaves(h *Head)

	// Cooled is called when the copy is cooled: its parent must not lead to it any more.
	Cooled(h *Head)
}

// PathAware makes the cache path-aware, before its first use.
func (c *Cache) PathAware(p Paths) { c.paths = p }

// Places returns the number of places, of which some are empty.
func (c *Cache) Places() int { return len(c.places) }

// Any returns the copy in a place; nil if that is empty.
func (c *Cache) Any(place int) *Head { return c.places[place].node.Load() }

// IsCooled reports whether the copy was cooled and has not been found since.
func (h *Head) IsCooled() bool { return h.useCount() == 0 }

// Cool cools n, and reports whether it did: it does not if the cache has dropped n or has children
// of it.
func (c *Cache) Cool(n *Head) bool {
	s := c.single()
	s.Lock()
	defer s.Unlock()
	if !n.Kept() || n.IsCooled() || c.paths.HasChildren(n) {
		return false
	}
	n.setUsed(0)
	c.paths.Cooled(n)
	return true
}

// EvictCooled drops the copy of the node at a, if it is still cooled and without children. A
// session that finds the copy at the same time goes on with a dropped one, as after any eviction.
func (c *Cache) EvictCooled(a pool.Addr) bool {
	s := c.single()
	s.Lock()
	defer s.Unlock()
	set := c.setOf(a)
	for i := range set {
		n := set[i].node.Load()
		if n != nil && n.Addr == a && n.IsCooled() && !c.paths.HasChildren(n) {
			c.dropCopy(s, &set[i])
			return true
		}
	}
	return false
}

// mostLooks bounds the copies that are looked at for one without children.
const mostLooks = 8 * looks

// leaving returns the place of a copy that is evicted for n. It has no children: a cooled one, or
// of a few the one of the lowest level that is used least. If each has children, leaves are cooled.
// Copies of levels above that of n are not evicted: the parent of n has no children yet.
func (c *Cache) leaving(n *Head) *place {
	o, s := outcast{level: n.Level()}, c.single()
	for left, met := len(c.places), 0; left > 0 && o.seen < looks && met < mostLooks; left-- {
		s.hand = (s.hand + 1) % len(c.places)
		if p := &c.places[s.hand]; p.node.Load() != nil {
			met++
			if c.consider(&o, p) {
				return p
			}
		}
	}
	return c.settle(&o)
}

// leavingOf is leaving for a full set.
func (c *Cache) leavingOf(set []place, n *Head) *place {
	o := outcast{level: n.Level()}
	for i := range set {
		c.consider(&o, &set[i])
	}
	return c.settle(&o)
}

// outcast is what is evicted of the copies that were considered.
type outcast struct {
	level     uint8 // the highest one
	childless *place
	parent    *place // of leaves
	seen      int    // copies without children
}

// consider reports whether the copy in p is cooled and has no children, so that no other need be
// considered.
func (c *Cache) consider(o *outcast, p *place) bool {
	n, best := p.node.Load(), &o.childless
	if n.Level() > o.level {
		return false
	}
	if c.paths.HasChildren(n) {
		if best = &o.parent; n.Level() > 1 {
			return false
		}
	} else if o.seen++; n.IsCooled() {
		o.childless = p
		return true
	}
	if *best == nil || n.lessThan((*best).node.Load()) {
		*best = p
	}
	return false
}

func (c *Cache) settle(o *outcast) *place {
	if o.childless == nil && o.parent != nil {
		c.paths.CoolLeaves(o.parent.node.Load())
		return o.parent
	}
	return o.childless
}
