package chime

import (
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Scan implements index.Session (section 4.4, "Scan"): leaves that the range meets are READ whole,
// as many in parallel as the limit seems to need. Keys lie in a leaf by their hash, so each slot of
// it may have one of the range. Where keys lie in blocks, these are READ, too, those of all pairs
// of the leaf: it does not say which of them the range meets.
func (s *session) Scan(start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	s.Begin()
	defer s.End()
	s.scan.pairs, s.scan.s = &s.pairs, s
	return s.ScanPairs(&s.scan, false, start, limit, reverse, visit)
}

// scanned is the leaf in which a scan is. It implements btree.LeafPairs.
type scanned struct {
	*pairs // of the session
	s      *session
	l      leaf
	header fence.Header
}

// Open implements btree.LeafPairs.
func (c *scanned) Open(a pool.Addr, b []byte) *fence.Header {
	c.l = leaf{&c.s.t.shape, a, b}
	return headerOf(&c.l, &c.header)
}

// Collect implements btree.LeafPairs.
func (c *scanned) Collect() (ok bool, err error) {
	if !c.collect(c.l, &c.header) {
		return false, nil
	}
	return c.s.loadKeys(c.pairs)
}

// Sort implements btree.LeafPairs.
func (c *scanned) Sort() { c.sort() }

// Key implements btree.LeafPairs.
func (c *scanned) Key(i int) []byte { return c.key(i) }

// Pair implements btree.LeafPairs.
func (c *scanned) Pair(i int) (key, value []byte, long bool) {
	key, value = c.pair(i)
	return key, value, !c.s.t.indirect && c.s.Lay.HasReference(c.Entry(i))
}

// Same implements btree.LeafPairs: a leaf that verifies as a whole has each key once.
func (c *scanned) Same(int) bool { return false }

// Find implements btree.LeafPairs.
func (c *scanned) Find(key, dst []byte) ([]byte, error) { return c.s.find(key, dst) }
