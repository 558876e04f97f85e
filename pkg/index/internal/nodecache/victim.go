package nodecache

// victimOf returns the place in a full set that n may take: that of the least used copy of the
// lowest level; nil if each is worth more.
func victimOf(set []place, n *Head) *place {
	v := &set[0]
	for i := range set {
		if set[i].node.Load().lessThan(v.node.Load()) {
			v = &set[i]
		}
	}
	if !v.node.Load().lessThan(n) {
		return nil
	}
	return v
}

// leastOf is least, or leavingOf in a path-aware cache.
func (c *Cache) leastOf(set []place, n *Head) *place {
	if c.paths != nil {
		return c.leavingOf(set, n)
	}
	return victimOf(set, n)
}

// victim returns the place of a copy of s that is evicted for n: of the next few of the lowest
// level the least used one; nil if it is worth more than n.
func (c *Cache) victim(s *shard, n *Head) (v *place) {
	if c.paths != nil {
		return c.leaving(n)
	}
	lowest := uint8(1)
	for s.levels[lowest] == 0 {
		if lowest >= n.Level() {
			return nil
		}
		lowest++
	}
	for left, seen := len(s.places), 0; left > 0 && seen < looks; left-- {
		s.hand = (s.hand + 1) % len(s.places)
		p := &s.places[s.hand]
		old := p.node.Load()
		if old == nil || old.Level() != lowest {
			continue
		}
		if seen++; v == nil || old.lessThan(v.node.Load()) {
			v = p
		}
	}
	if !v.node.Load().lessThan(n) {
		return nil
	}
	return v
}

// lessThan reports whether n is evicted before m.
func (n *Head) lessThan(m *Head) bool {
	return n.Level() < m.Level() || n.Level() == m.Level() && n.useCount() < m.useCount()
}

// tick counts a put or a miss in s. Now and then it halves all counts there, so that what was
// looked for long ago counts for less.
func (c *Cache) tick(s *shard) {
	if s.puts++; c.paths != nil || s.puts <= halving*(s.kept+ways) {
		return
	}
	s.puts = 0
	s.missed.Halve()
	for i := range s.places {
		if n := s.places[i].node.Load(); n != nil {
			n.setUsed(n.useCount() / 2)
		}
	}
}
