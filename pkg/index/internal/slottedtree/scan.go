package slottedtree

import (
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Scan implements index.Session.
func (s *Session) Scan(start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	s.Begin()
	defer s.End()
	return s.ScanPairs(s.scanned(), false, start, limit, reverse, visit)
}

// ScanWithin is Scan as a part of an operation, and ends where the leaf cache says (Bound).
func (s *Session) ScanWithin(start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	return s.ScanPairs(s.scanned(), true, start, limit, reverse, visit)
}

// scanned is the leaf in which a scan is. It implements btree.LeafPairs.
type scanned struct {
	*slotted.Pairs // of the session
	s              *Session
	l              slotted.Leaf
}

func (s *Session) scanned() *scanned {
	s.scan.Pairs, s.scan.s = &s.pairs, s
	return &s.scan
}

// Open implements btree.LeafPairs.
func (c *scanned) Open(a pool.Addr, b []byte) *fence.Header {
	if !c.l.Open(c.s.Lay, a, b) {
		return nil
	}
	return &c.l.Header
}

// Collect implements btree.LeafPairs.
func (c *scanned) Collect() (bool, error) { return c.l.Collect(c.Pairs), nil }

// Pair implements btree.LeafPairs.
func (c *scanned) Pair(i int) (key, value []byte, long bool) {
	key, value = c.Pairs.Pair(i)
	return key, value, c.s.Lay.HasReference(c.Entry(i))
}

// Find implements btree.LeafPairs.
func (c *scanned) Find(key, dst []byte) ([]byte, error) { return c.s.Find(key, dst) }
