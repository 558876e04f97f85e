package bufferpool

import (
	"slices"

	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Steps of the paper's cache (paper.go) in which a frame, that was found for a leaf, may have got
// another leaf meanwhile, or none.

// cool cools the leaf at a, which was in f when it was chosen, and returns what push does. If f has
// got another leaf since, that one may be cooled by the store, and only a push of its own address
// would let it be evicted. So it is made an ordinary one again.
func (p *paperCache) cool(f *frame.Frame, a pool.Addr) (out uint64) {
	f.SetUses(0)
	if f.Addr() != a {
		f.SetUses(1)
		return 0
	}
	p.unswizzle(f.ID())
	return p.cooling.push(uint64(a))
}

// claim locks f, which was found for the cooled leaf at a, to evict that: steps 2 and 3. It returns
// false, without the lock, if the leaf was found since, or f has another one, or is free.
func (p *paperCache) claim(f *frame.Frame, a pool.Addr) bool {
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

// Forgotten is for tests: it counts the cooled leaves that no entry of the cooling map leads to:
// nothing cools them again, so they are not evicted before they are found.
func (c *Pool) Forgotten() (n int) {
	if c.paper == nil {
		return 0
	}
	m, has := &c.paper.cooling, map[uint64]bool{}
	for i := range m.buckets {
		b, oldest, count := m.lock(i)
		for k := range count {
			has[b[1+(oldest+k)%m.size]] = true
		}
		m.unlock(b, oldest, count)
	}
	for i := range c.frames {
		f := &c.frames[i]
		a := f.Addr()
		if a != 0 && f.Uses() == 0 && !has[uint64(a)] && !slices.Contains(c.paper.mu.leavers, uint64(a)) {
			n++
		}
	}
	return n
}
