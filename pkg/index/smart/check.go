package smart

import (
	"bytes"
	"errors"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/pool"
)

// walker checks the leaves of a tree.
type walker struct {
	*art.Walker
	s   *Session
	key []byte
}

// Check implements index.Checker. Package art checks inner nodes. Leaves that are gone or moved may
// be there, as clients that died leave them. Else each verifies, and none is a dead mark (I5).
func (t *Tree) Check() (index.Structure, error) {
	s, err := t.newSession()
	if err != nil {
		return index.Structure{}, err
	}
	c := &walker{s: s}
	c.Walker = s.NewWalker(c)
	s.Begin()
	err = c.Walker.Check()
	return c.Report.Found, errors.Join(err, c.Report.Err(), s.Close())
}

// Verifies implements index.Checker.
func (t *Tree) Verifies(a pool.Addr, node []byte) bool {
	var h art.Header
	var l leaf
	return h.Decode(t.lay.Sums, node, a) || l.open(t.lay.Sums, node, a) == whole
}

// CheckLeaves implements art.LeafChecker.
func (c *walker) CheckLeaves(f *art.Frame, level int) error {
	for b := f.From(art.BeforeAll, false); b != art.BehindAll; {
		c.s.ring.reset()
		first := b
		for ; b != art.BehindAll; b = f.From(b+1, false) {
			if w := f.Word(b); w.Leaf() && !c.s.lay.Damaged(w, b == art.EndBranch) && c.s.fetch(w, 0, w.LeafBytes()) < 0 {
				break
			}
		}
		if err := c.s.fetchAll(mostGap); err != nil {
			return err
		}
		for i, b := 0, first; i < c.s.ring.n; b = f.From(b+1, false) {
			if w := f.Word(b); w.Leaf() && !c.s.lay.Damaged(w, b == art.EndBranch) {
				if err := c.leaf(f, b, w, i); err != nil {
					return err
				}
				c.Report.Found.Levels = max(c.Report.Found.Levels, level+2)
				i++
			}
		}
	}
	return nil
}

// leaf checks the leaf of slot w at branch b of f, which the i-th READ got.
func (c *walker) leaf(f *art.Frame, b int, w art.Slot, i int) error {
	var l leaf
	v, err := c.s.openLeaf(&l, i)
	for err == nil {
		c.Report.Node(w.Addr(), art.AllocatedFor(w.LeafBytes()), index.KindLeaf)
		if v == out {
			c.Report.Fault("leaf %v is in the tree, and marked dead", w.Addr())
			return nil
		}
		if art.LeafCode(l.bytes()) != int(w.Code()) {
			c.Report.Fault("leaf %v has %d bytes, its slot says %d", l.at, l.bytes(), w.LeafBytes())
		}
		c.key = l.appendKey(c.key[:0])
		n := len(c.Path)
		if len(c.key) > c.s.lay.MaxKey || !bytes.HasPrefix(c.key, c.Path) || art.Branch(c.key, n) != b {
			c.Report.Fault("leaf %v has key %x, and is at branch %d where keys begin with %x", l.at, c.key, b, c.Path)
		}
		switch l.ctl.state() {
		case gone, dead:
			return nil
		case alive:
			return c.pair(&l)
		}
		// The new leaf is known only by the one that moved.
		c.Report.Found.Unlinked++
		w = l.forward()
		v, err = c.s.readWhole(w)
		l = c.s.leaf
	}
	return err
}

// pair checks the value of l.
func (c *walker) pair(l *leaf) error {
	v, long := l.value()
	if !long {
		if len(v) > c.s.lay.Inline {
			c.Report.Fault("leaf %v has a value of %d bytes in it, at most %d may be", l.at, len(v), c.s.lay.Inline)
		}
		c.Report.Pair(l.key, len(v))
		return nil
	}
	r := reference(v)
	if !c.s.lay.Blocks || r.Length > c.s.lay.MaxValue {
		c.Report.Fault("leaf %v refers to a block of %d bytes", l.at, r.Length)
		return nil
	}
	c.Report.Pair(l.key, r.Length)
	return c.Report.Block(l.at, &r, &c.s.Blocks)
}

// Survey implements index.Surveyor. A leaf has one pair, and its range begins at the bytes that its
// place in the tree stands for, not at its key, which a survey does not READ. An index without
// leaves has the range of its root.
func (t *Tree) Survey(visit func(low []byte, bytes int) error) error {
	s, err := t.newSession()
	if err != nil {
		return err
	}
	s.Begin()
	err = s.NewWalker(nil).Survey(t.lay.Bottom, visit)
	return errors.Join(err, s.Close())
}
