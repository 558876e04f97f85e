package btree

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/checker"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/pool"
)

// walker checks the whole tree, level by level along the sibling pointers.
type walker struct {
	s      *Session
	report checker.Report
	leaves LeafChecker

	above []span // the children that the level above knows, in order
	below []span // the children that this level knows
}

// LeafChecker checks the pairs of a leaf.
type LeafChecker interface {
	// CheckLeaf reports to r what the leaf at a holds, of which b was READ, and what of it is
	// wrong. It may READ blocks with s. ok is false if b does not verify as a whole: then it is
	// READ again.
	CheckLeaf(s *Session, r *checker.Report, a pool.Addr, b []byte) (ok bool, err error)
}

// span is a node and the range that its parent says it begins with.
type span struct {
	addr pool.Addr
	low  []byte
}

// Check checks the tree for index.Checker: every level is one chain of siblings that covers all
// keys without gap or overlap, nodes verify, keys lie between their node's fences and are there
// once, what parents know stands in the chain in that order, and no node is there twice.
func (t *Tree) Check(leaves LeafChecker) (index.Structure, error) {
	s, err := t.NewSession()
	if err != nil {
		return index.Structure{}, err
	}
	c := &walker{s: s, leaves: leaves}
	err = c.walk()
	return c.report.Found, errors.Join(err, c.report.Err(), s.Close())
}

// Verifies reports whether node, READ from a, is a whole node of the tree.
func (t *Tree) Verifies(a pool.Addr, node []byte) bool {
	return t.leaves.Verify(a, node) || decodeInner(&t.Lay, a, node) != nil
}

// Survey implements index.Surveyor: it walks the level above the leaves along its sibling pointers.
func (t *Tree) Survey(visit func(low []byte, bytes int) error) error {
	s, err := t.NewSession()
	if err != nil {
		return err
	}
	return errors.Join(s.survey(visit), s.Close())
}

func (s *Session) survey(visit func(low []byte, bytes int) error) error {
	s.Begin()
	root, err := s.relearnRoot()
	if err != nil {
		return err
	}
	if root.level == 0 {
		return visit(s.Lay.Bottom, s.Lay.NodeBytes)
	}
	a := root.addr
	for level := root.level; level > 1; level-- {
		n, err := s.readInner(a, level)
		if err != nil {
			return err
		}
		a = n.children[0]
	}
	var last []byte
	for first := true; ; first = false {
		s.Begin()
		n, err := s.readInner(a, 1)
		if err != nil {
			return err
		}
		if !first && !item.Below(last, n.low) {
			return leadsLeft(a, 1, n.low, last)
		}
		last = n.low
		for i := range n.children {
			low := n.low
			if i > 0 {
				low = n.separator(i - 1)
			}
			if err := visit(low, s.Lay.NodeBytes); err != nil {
				return err
			}
		}
		if n.rightmost {
			return nil
		}
		a = n.sibling
	}
}

// leadsLeft is the error of a chain of siblings that does not go right: it may have no end.
func leadsLeft(a pool.Addr, level uint8, low, last []byte) error {
	return fmt.Errorf("node %v of level %d begins at %x, and its left sibling at %x; restore a dump: %w", a, level, low, last, index.ErrFormat)
}

func (c *walker) walk() error {
	c.s.Begin()
	root, err := c.s.relearnRoot()
	if err != nil {
		return err
	}
	c.report.Found.Levels = int(root.level) + 1
	c.above = []span{{root.addr, c.s.Lay.Bottom}}
	for level := root.level; ; level-- {
		if err := c.level(c.above[0].addr, level); err != nil {
			return err
		}
		if level == 0 {
			break
		}
		c.above, c.below = c.below, nil
	}
	c.report.Finish()
	return nil
}

// level walks the chain of a level from its first node on.
func (c *walker) level(a pool.Addr, level uint8) error {
	var last []byte // the low fence of the left sibling
	low, known := c.s.Lay.Bottom, c.above
	for first := true; ; first = false {
		c.s.Begin()
		h, err := c.node(a, level)
		if err != nil {
			return err
		}
		kind := index.KindLeaf
		if level > 0 {
			kind = index.KindInner
		}
		c.report.Node(a, c.s.Lay.NodeBytes, kind)
		if !first && !item.Below(last, h.Low) {
			return leadsLeft(a, level, h.Low, last)
		}
		last = bytes.Clone(h.Low)
		if !bytes.Equal(h.Low, low) {
			c.report.Fault("node %v of level %d begins at %x, its left sibling ends at %x", a, level, h.Low, low)
		}
		if len(known) > 0 && known[0].addr == a {
			if !bytes.Equal(known[0].low, h.Low) {
				c.report.Fault("node %v of level %d begins at %x, its parent says %x", a, level, h.Low, known[0].low)
			}
			known = known[1:]
		} else {
			c.report.Found.Unlinked++
		}
		if h.Rightmost {
			break
		}
		if !item.Below(h.Low, h.High) {
			return fmt.Errorf("node %v of level %d has fences %x and %x", a, level, h.Low, h.High)
		}
		a, low = h.Sibling, bytes.Clone(h.High)
	}
	if len(known) > 0 {
		c.report.Fault("node %v, which level %d knows, is not on level %d or not in its place", known[0].addr, level+1, level)
	}
	return nil
}

// node reads a node and checks what is in it.
func (c *walker) node(a pool.Addr, level uint8) (*fence.Header, error) {
	if level > 0 {
		n, err := c.s.readInner(a, level)
		if err != nil {
			return nil, err
		}
		c.inner(n)
		return &fence.Header{Low: n.low, High: n.high, Rightmost: n.rightmost, Sibling: n.sibling}, nil
	}
	for {
		if err := c.s.Read(a, c.s.Node); err != nil {
			return nil, err
		}
		if h, ok := c.s.t.leaves.Open(a, c.s.Node); ok {
			if ok, err := c.leaves.CheckLeaf(c.s, &c.report, a, c.s.Node); ok || err != nil {
				return &h, err
			}
		}
		if err := c.s.Reread(a); err != nil {
			return nil, err
		}
	}
}

func (c *walker) inner(n *inner) {
	low := n.low
	for i, child := range n.children {
		if i > 0 {
			sep := n.separator(i - 1)
			if !item.Below(low, sep) {
				c.report.Fault("%v: separator %x stands behind %x", n, sep, low)
			}
			low = sep
		}
		c.below = append(c.below, span{child, low})
	}
	if !n.rightmost && !item.Below(low, n.high) {
		c.report.Fault("%v: separator %x reaches the high fence %x", n, low, n.high)
	}
}
