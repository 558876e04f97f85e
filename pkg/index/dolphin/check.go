package dolphin

import (
	"bytes"
	"errors"
	"slices"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/pool"
)

// walker checks the leaves of a tree.
type walker struct {
	*art.Walker
	s      *Session
	ranges []checkedRange
}

// checkedRange is that of a leaf which has a slot.
type checkedRange struct {
	at        pool.Addr
	low, high []byte
	endless   bool
	fw        uint64
}

// Check implements index.Checker. Package art checks inner nodes. A leaf may have been left by a
// client that died with others in its place. Else each verifies, and the ranges of those with slots
// follow each other without a gap.
func (t *Tree) Check() (index.Structure, error) {
	s, err := t.newSession()
	if err != nil {
		return index.Structure{}, err
	}
	c := &walker{s: s}
	c.Walker = s.NewWalker(c)
	s.Begin()
	if err = c.Walker.Check(); err == nil {
		err = c.halfDone()
	}
	return c.Report.Found, errors.Join(err, c.Report.Err(), s.Close())
}

// Verifies implements index.Checker.
func (t *Tree) Verifies(a pool.Addr, node []byte) bool {
	var h art.Header
	l := leaf{lay: &t.lay}
	return h.Decode(t.lay.Sums, node, a) || len(node) >= t.lay.size && l.open(node, a) || t.lay.Blocks && blocks.Verify(a, node)
}

// CheckLeaves implements art.LeafChecker.
func (c *walker) CheckLeaves(f *art.Frame, level int) error {
	for b := f.From(art.BeforeAll, false); b != art.BehindAll; b = f.From(b+1, false) {
		w := f.Word(b)
		if !w.Leaf() {
			continue
		}
		c.Report.Found.Levels = max(c.Report.Found.Levels, level+2)
		if err := c.leaf(w, b); err != nil {
			return err
		}
	}
	return nil
}

// leaf checks the leaf of w, the word at branch b of the node where the walk is.
func (c *walker) leaf(w art.Slot, b int) error {
	s, a := c.s, w.Addr()
	if err := s.Read(a, s.room); err != nil {
		return err
	}
	c.Report.Node(a, s.lay.size, index.KindLeaf)
	l := &s.leaf
	if !l.open(s.room, a) {
		c.Report.Fault("leaf %v is in the tree, and does not verify", a)
		return nil
	}
	if n := len(c.Path); !bytes.HasPrefix(l.low, c.Path) || art.Branch(l.low, n) != b {
		c.Report.Fault("leaf %v begins at %x, and is at branch %d where places begin with %x", a, l.low, b, c.Path)
	} else if w.Clean() != s.lay.WordWithPlace(w.Clean(), l.low[min(n+1, len(l.low)):]) {
		// Descents would pass the leaf by, or READ it in vain.
		c.Report.Fault("leaf %v begins at %x, and its slot %#x says another place", a, l.low, uint64(w))
	}
	fw, err := s.t.forwardOf(l)
	if err != nil {
		c.Report.Fault("%v", err)
		return nil
	}
	c.ranges = append(c.ranges, checkedRange{a, bytes.Clone(l.low), bytes.Clone(l.high), l.endless, fw})
	if fw >= merging {
		return nil // halfDone says what counts
	}
	return c.pairs(l)
}

// halfDone checks what clients that died left: leaves in whose place others are, and those that
// were to be merged. It closes the report.
func (c *walker) halfDone() error {
	slices.SortFunc(c.ranges, func(a, b checkedRange) int { return bytes.Compare(a.low, b.low) })
	seen := map[pool.Addr]bool{}
	for _, r := range c.ranges {
		seen[r.at] = true
	}
	for i := range c.ranges {
		r := &c.ranges[i]
		switch {
		case r.fw > merging:
			if err := c.replaced(r, seen); err != nil {
				return err
			}
		case r.fw == merging && (i+1 == len(c.ranges) || c.ranges[i+1].fw <= merging):
			if err := c.s.Read(r.at, c.s.room); err != nil {
				return err
			}
			if c.s.leaf.open(c.s.room, r.at) {
				if err := c.pairs(&c.s.leaf); err != nil {
					return err
				}
			}
		}
	}
	c.contiguous()
	c.Report.Finish()
	return nil
}

// replaced checks what has taken the place of the leaf of r, and makes r the range that its slot
// leads to.
func (c *walker) replaced(r *checkedRange, seen map[pool.Addr]bool) error {
	s := c.s
	for a := pool.Addr(r.fw); a != pool.Nil; {
		if err := s.Read(a, s.room); err != nil {
			return err
		}
		l := &s.leaf
		if !l.open(s.room, a) || bytes.Compare(l.low, r.low) > 0 && a == pool.Addr(r.fw) {
			c.Report.Fault("leaf %v took the place of one from %x on, and is none", a, r.low)
			return nil
		}
		if bytes.Equal(l.low, r.low) && l.merged != pool.Nil && a == pool.Addr(r.fw) {
			r.high, r.endless = bytes.Clone(l.high), l.endless
		}
		if !seen[a] {
			seen[a] = true
			c.Report.Node(a, s.lay.size, index.KindLeaf)
			c.Report.Found.Unlinked++
			if err := c.pairs(l); err != nil {
				return err
			}
		}
		a = l.right
	}
	return nil
}

// contiguous checks that ranges cover all keys.
func (c *walker) contiguous() {
	for i, r := range c.ranges {
		last := i+1 == len(c.ranges)
		switch {
		case i == 0 && len(r.low) > 0:
			c.Report.Fault("leaf %v is the first one, and begins at %x", r.at, r.low)
		case last && !r.endless:
			c.Report.Fault("leaf %v is the last one, and ends at %x", r.at, r.high)
		case !last && (r.endless || !bytes.Equal(r.high, c.ranges[i+1].low)) && !c.divided(i):
			c.Report.Fault("leaf %v ends at %x, and the next one begins at %x", r.at, r.high, c.ranges[i+1].low)
		}
	}
}

// divided reports whether the leaf of range i was left by a client that died behind the slot of its
// right half.
func (c *walker) divided(i int) bool {
	r, n := c.ranges[i], c.ranges[i+1]
	return (r.endless || bytes.Compare(n.low, r.high) < 0) && r.endless == n.endless && bytes.Equal(r.high, n.high)
}

// pairs checks the records of l.
func (c *walker) pairs(l *leaf) error {
	s := c.s
	if s.aliveLocked(l) { // nobody changes it
		c.Report.Fault("leaf %v has a record that is none", l.at)
		return nil
	}
	for _, p := range s.pairs {
		key := l.key(p.cursor, p.w)
		if l.below(key, false) || l.above(key, false) {
			c.Report.Fault("leaf %v has key %x, its range is from %x to %x", l.at, key, l.low, l.high)
		}
		v, long, _ := l.value(p.cursor, p.w)
		switch {
		case !long:
			c.Report.Pair(len(key), len(v))
		default:
			r := blocks.Decode(v)
			if !s.lay.Blocks || r.Length > s.lay.MaxValue {
				c.Report.Fault("leaf %v refers to a block of %d bytes", l.at, r.Length)
				continue
			}
			c.Report.Pair(len(key), r.Length)
			if err := c.Report.Block(l.at, &r, &s.Blocks); err != nil {
				return err
			}
		}
	}
	return nil
}

// Survey implements index.Surveyor. It goes by the ranges of leaves, in pieces that are operations
// of their own. An index without leaves has the range of its root.
func (t *Tree) Survey(visit func(low []byte, bytes int) error) error {
	s, err := t.newSession()
	if err != nil {
		return err
	}
	err = s.survey(visit)
	return errors.Join(err, s.Close())
}

func (s *Session) survey(visit func(low []byte, bytes int) error) error {
	sc := s.scanner()
	sc.reverse, sc.strict, sc.alone, sc.left, sc.bound = false, false, false, len(s.ring)*sc.usual, sc.bound[:0]
	low, some := bytes.Clone(s.lay.Bottom), false
	for more := true; more; {
		var err error
		if more, err = s.surveyPiece(func(l *leaf) error {
			some = true
			low = append(low[:0], l.low...)
			for len(low) < len(s.lay.Bottom) {
				low = append(low, 0)
			}
			return visit(low, s.lay.size)
		}); err != nil {
			return err
		}
	}
	if some {
		return nil
	}
	return visit(low, art.AllocatedFor(art.Direct.Bytes()))
}

// surveyPiece visits the leaves that come next.
func (s *Session) surveyPiece(visit func(l *leaf) error) (more bool, err error) {
	s.Begin()
	defer s.End()
	return s.eachAhead(func() (step, error) {
		l := &s.scan.leaf
		if err := visit(l); err != nil {
			return over, err
		}
		s.scan.bound = append(s.scan.bound[:0], l.high...)
		if l.endless {
			return over, nil
		}
		return beside, nil
	})
}
