package btree

import "github.com/dmindex/dmindex/pkg/pool"

// Staging is a buffer for one leaf, which the tree does not use. Who asks for it may write it: what
// it had is forgotten.
func (s *Session) Staging() []byte {
	s.remembered, s.since = pool.Nil, 0
	return s.staging
}

// Remember notes that the staging buffer has what was READ of the leaf at a after the leaf cache's
// clock showed since, until somebody asks for the buffer. Whoever uses it verifies it.
func (s *Session) Remember(a pool.Addr, since uint64) { s.remembered, s.since = a, since }

// Remembers reports whether it has that leaf, and since when.
func (s *Session) Remembers(a pool.Addr) (since uint64, ok bool) {
	return s.since, a == s.remembered && a != pool.Nil
}
