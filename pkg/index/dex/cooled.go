package dex

import (
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Steps of the paper's cache (cooling.go) in which a frame, that was found for a leaf, may have got
// another leaf meanwhile, or none.

// cool cools the leaf at a, which was in f when it was chosen, and returns what push does. If f has
// got another leaf since, that one may be cooled by the store, and only a push of its own address
// would let it be evicted. So it is made an ordinary one again.
func (c *cache) cool(f *frame.Frame, a pool.Addr) (out uint64) {
	f.SetUses(0)
	if f.Addr() != a {
		f.SetUses(1)
		return 0
	}
	c.paper.unswizzle(f.ID())
	return c.paper.cooling.push(uint64(a))
}

// claim locks f, which was found for the cooled leaf at a, to evict that: steps 2 and 3. It returns
// false, without the lock, if the leaf was found since, or f has another one, or is free.
func (c *cache) claim(f *frame.Frame, a pool.Addr) bool {
	if f.Uses() != 0 {
		return false
	}
	if !f.TryLock() {
		f.SetUses(1) // it is in use: it stays
		return false
	}
	if f.Addr() == a && f.Uses() == 0 {
		return true
	}
	f.Unlock()
	return false
}
