package nodecache

import "github.com/dmindex/dmindex/pkg/pool"

// Path-aware caching (DEX, section 5.3). A copy is not evicted while the cache has children of it.
// What is to be evicted is chosen by the owner, which samples copies (Any), delegates to a child as
// long as there is one, and cools the copy at the end of the path (Cool). A cooled copy that is
// found again is an ordinary one; EvictCooled evicts those that were not.
//
// Where a new copy finds no room, a copy without children is evicted: a cooled one, or the least
// used one of a few. If each has children the new one is not kept, and the cache is short of bytes.
// Every new copy is kept otherwise, however seldom it is looked for (lazy admission, section 5.4:
// inner nodes are admitted with probability 1). Counts are not halved: a count of 0 says that the
// copy is cooled.

// Paths is what a path-aware cache asks its owner. Both are called under the cache's lock.
type Paths interface {
	// HasChildren reports whether children of the copy are in the cache.
	HasChildren(h *Head) bool

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
func (h *Head) IsCooled() bool { return h.used.Load() == 0 }

// Cool cools n, and reports whether it did: it does not if the cache has dropped n or has children
// of it.
func (c *Cache) Cool(n *Head) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !n.Kept() || n.IsCooled() || c.paths.HasChildren(n) {
		return false
	}
	n.used.Store(0)
	c.paths.Cooled(n)
	return true
}

// EvictCooled drops the copy of the node at a, if it is still cooled and without children. A
// session that finds the copy at the same time goes on with a dropped one, as after any eviction.
func (c *Cache) EvictCooled(a pool.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	set := c.set(a)
	for i := range set {
		n := set[i].node.Load()
		if n != nil && n.Addr == a && n.IsCooled() && !c.paths.HasChildren(n) {
			c.replace(&set[i], nil)
			return true
		}
	}
	return false
}

// mostLooks bounds the copies that are looked at for one without children.
const mostLooks = 8 * looks

// childless returns the place of a copy without children: a cooled one, or of a few the one of the
// lowest level that is used least; nil if none was found.
func (c *Cache) childless() (v *place) {
	for left, seen, met := len(c.places), 0, 0; left > 0 && seen < looks && met < mostLooks; left-- {
		c.mu.hand = (c.mu.hand + 1) % len(c.places)
		p := &c.places[c.mu.hand]
		n := p.node.Load()
		if n == nil {
			continue
		}
		if met++; c.paths.HasChildren(n) {
			continue
		}
		if n.IsCooled() {
			return p
		}
		if seen++; v == nil || n.lessThan(v.node.Load()) {
			v = p
		}
	}
	return v
}

// childlessOf is childless for a full set.
func (c *Cache) childlessOf(set []place) (v *place) {
	for i := range set {
		n := set[i].node.Load()
		if !c.paths.HasChildren(n) && (v == nil || n.lessThan(v.node.Load())) {
			v = &set[i]
		}
	}
	return v
}
