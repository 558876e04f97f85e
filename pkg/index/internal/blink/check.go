package blink

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// checker walks the whole tree, level by level along the sibling pointers.
type checker struct {
	s     *session
	found index.Structure
	seen  []pool.Addr // every node

	blocks []pool.Addr // every block

	above []span // the children that the level above knows, in order
	below []span // the children that this level knows
	errs  []error
}

// span is a node and the range that its parent says it begins with.
type span struct {
	addr pool.Addr
	low  []byte
}

// maxFaults is how many faults are reported.
const maxFaults = 20

// Check implements index.Checker: every level is one chain of siblings that covers all keys without
// gap or overlap, nodes verify, keys lie between their node's fences and are there once, what
// parents know stands in the chain in that order, and no node is there twice.
func (t *tree) Check() (index.Structure, error) {
	s, err := t.newSession()
	if err != nil {
		return index.Structure{}, err
	}
	c := &checker{s: s}
	err = c.walk()
	return c.found, errors.Join(err, errors.Join(c.errs...), s.Close())
}

// Verifies implements index.Checker.
func (t *tree) Verifies(a pool.Addr, node []byte) bool {
	var l slotted.Leaf
	return l.Open(&t.lay, a, node) && l.Verify() || decodeInner(&t.lay, a, node) != nil || t.lay.Blocks && blocks.Verify(a, node)
}

// Survey implements index.Surveyor: it walks the level above the leaves along its sibling pointers.
func (t *tree) Survey(visit func(low []byte) error) (nodeBytes int, err error) {
	s, err := t.newSession()
	if err != nil {
		return 0, err
	}
	return t.lay.NodeBytes, errors.Join(s.survey(visit), s.Close())
}

func (s *session) survey(visit func(low []byte) error) error {
	s.Begin()
	root, err := s.relearnRoot()
	if err != nil {
		return err
	}
	if root.level == 0 {
		return visit(s.lay.Bottom)
	}
	a := root.addr
	for level := root.level; level > 1; level-- {
		n, err := s.readInner(a, level)
		if err != nil {
			return err
		}
		a = n.children[0]
	}
	for {
		s.Begin()
		n, err := s.readInner(a, 1)
		if err != nil {
			return err
		}
		for i := range n.children {
			low := n.low
			if i > 0 {
				low = n.separator(i - 1)
			}
			if err := visit(low); err != nil {
				return err
			}
		}
		if n.rightmost {
			return nil
		}
		a = n.sibling
	}
}

func (c *checker) fault(format string, args ...any) {
	if len(c.errs) < maxFaults {
		c.errs = append(c.errs, fmt.Errorf(format, args...))
	}
}

func (c *checker) walk() error {
	c.s.Begin()
	root, err := c.s.relearnRoot()
	if err != nil {
		return err
	}
	c.found.Levels = int(root.level) + 1
	c.above = []span{{root.addr, c.s.lay.Bottom}}
	for level := root.level; ; level-- {
		if err := c.level(c.above[0].addr, level); err != nil {
			return err
		}
		if level == 0 {
			break
		}
		c.above, c.below = c.below, nil
	}
	c.found.Nodes = len(c.seen)
	c.found.NodeBytes = uint64(len(c.seen)) * uint64(c.s.lay.NodeBytes)
	c.seen = append(c.seen, c.blocks...)
	slices.Sort(c.seen)
	c.found.Where = c.seen
	for i := 1; i < len(c.seen); i++ {
		if c.seen[i] == c.seen[i-1] {
			c.fault("node %v is in the tree twice", c.seen[i])
		}
	}
	return nil
}

// level walks the chain of a level from its first node on.
func (c *checker) level(a pool.Addr, level uint8) error {
	low, known := c.s.lay.Bottom, c.above
	for {
		c.s.Begin()
		h, err := c.node(a, level)
		if err != nil {
			return err
		}
		c.seen = append(c.seen, a)
		if !bytes.Equal(h.Low, low) {
			c.fault("node %v of level %d begins at %x, its left sibling ends at %x", a, level, h.Low, low)
		}
		if len(known) > 0 && known[0].addr == a {
			if !bytes.Equal(known[0].low, h.Low) {
				c.fault("node %v of level %d begins at %x, its parent says %x", a, level, h.Low, known[0].low)
			}
			known = known[1:]
		} else {
			c.found.Unlinked++
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
		c.fault("node %v, which level %d knows, is not on level %d or not in its place", known[0].addr, level+1, level)
	}
	return nil
}

// node reads a node and checks what is in it.
func (c *checker) node(a pool.Addr, level uint8) (*fence.Header, error) {
	if level > 0 {
		n, err := c.s.readInner(a, level)
		if err != nil {
			return nil, err
		}
		c.inner(n)
		return &fence.Header{Low: n.low, High: n.high, Rightmost: n.rightmost, Sibling: n.sibling}, nil
	}
	for {
		if err := c.s.Read(a, c.s.node); err != nil {
			return nil, err
		}
		var l slotted.Leaf
		if l.Open(c.s.lay, a, c.s.node) {
			if l.Collect(&c.s.pairs) {
				return &l.Header, c.leaf(&l, &c.s.pairs)
			}
		}
		if err := c.s.Reread(a); err != nil {
			return nil, err
		}
	}
}

func (c *checker) inner(n *inner) {
	low := n.low
	for i, child := range n.children {
		if i > 0 {
			sep := n.separator(i - 1)
			if !item.Below(low, sep) {
				c.fault("%v: separator %x stands behind %x", n, sep, low)
			}
			low = sep
		}
		c.below = append(c.below, span{child, low})
	}
	if !n.rightmost && !item.Below(low, n.high) {
		c.fault("%v: separator %x reaches the high fence %x", n, low, n.high)
	}
}

func (c *checker) leaf(l *slotted.Leaf, p *slotted.Pairs) error {
	p.Sort()
	for i := range p.List {
		key, value := p.Pair(i)
		if item.Below(key, l.Low) || l.Above(key) {
			c.fault("leaf %v of %x to %x has key %x", l.Addr, l.Low, l.High, key)
		}
		if i > 0 && !item.Below(p.Key(i-1), key) {
			c.fault("leaf %v has key %x twice", l.Addr, key)
		}
		length := len(value)
		if at, ok := blocks.ReferenceIn(&l.Lay.Codec, p.Entry(i)); ok {
			if length = at.Length; length > l.Lay.MaxValue {
				c.fault("leaf %v has a value of %d bytes", l.Addr, length)
				continue
			}
			if err := c.block(l, &at); err != nil {
				return err
			}
		}
		c.found.Pairs++
		c.found.PairBytes += uint64(len(key) + length)
	}
	var used slotted.HeapMap
	for i := range l.Count {
		w := l.SlotWord(i)
		first, end := slotted.SlotOffset(w)/fence.Grain, (slotted.SlotOffset(w)+slotted.SlotLength(w)+fence.Grain-1)/fence.Grain
		if slotted.SlotLength(w) != 0 && used.Next(first, end, true) != end {
			c.fault("leaf %v: the entry of slot %d lies over another one", l.Addr, i)
		}
		used.Mark(first, end-first)
	}
	return nil
}

// block checks the block that a leaf's entry refers to.
func (c *checker) block(l *slotted.Leaf, r *blocks.Reference) error {
	c.blocks = append(c.blocks, r.Addr)
	ok, err := c.s.Blocks.Load(r)
	if err != nil {
		return err
	}
	if !ok {
		c.fault("leaf %v: the block at %v is not what its entry says: %w", l.Addr, r.Addr, index.ErrFormat)
	}
	c.found.Blocks++
	c.found.BlockBytes += uint64(r.Size)
	return nil
}
