package dex

// Steps of the paper's cache (cooling.go) in which a frame, that was found for a leaf, may have got
// another leaf meanwhile, or none.

// cool cools the leaf at a, which was in f when it was chosen, and returns what push does. If f has
// got another leaf since, that one may be cooled by the store, and only a push of its own address
// would let it be evicted. So it is made an ordinary one again.
func (c *cache) cool(f *frame, a uint64) (out uint64) {
	f.used.Store(0)
	if f.addr.Load() != a {
		f.used.Store(1)
		return 0
	}
	c.paper.unswizzle(f.id)
	return c.paper.cooling.push(a)
}

// claim locks f, which was found for the cooled leaf at a, to evict that: steps 2 and 3. It returns
// false, without the lock, if the leaf was found since, or f has another one, or is free.
func (c *cache) claim(f *frame, a uint64) bool {
	if f.used.Load() != 0 {
		return false
	}
	if !f.tryLock() {
		f.used.Store(1) // it is in use: it stays
		return false
	}
	if f.addr.Load() == a && f.used.Load() == 0 {
		return true
	}
	f.unlock()
	return false
}
