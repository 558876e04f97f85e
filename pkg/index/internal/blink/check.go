package blink

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
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

// Check implements index.Checker: every level is one chain of siblings that covers all keys without gap or overlap, nodes
// verify, keys lie between their node's fences and are there once, what parents know stands in the chain in that order, and no node is there
// twice.
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
	var l leaf
	return l.open(&t.lay, a, node) && l.verifyAll() || decodeInner(&t.lay, a, node) != nil || t.lay.Blocks && blocks.Verify(a, node)
}

// Survey implements index.Surveyor: it walks the level above the leaves along its sibling pointers.
func (t *tree) Survey(visit func(low []byte) error) (nodeBytes int, err error) {
	s, err := t.newSession()
	if err != nil {
		return 0, err
	}
	return t.lay.nodeBytes, errors.Join(s.survey(visit), s.Close())
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
	c.found.NodeBytes = uint64(len(c.seen)) * uint64(c.s.lay.nodeBytes)
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
		if !bytes.Equal(h.low, low) {
			c.fault("node %v of level %d begins at %x, its left sibling ends at %x", a, level, h.low, low)
		}
		if len(known) > 0 && known[0].addr == a {
			if !bytes.Equal(known[0].low, h.low) {
				c.fault("node %v of level %d begins at %x, its parent says %x", a, level, h.low, known[0].low)
			}
			known = known[1:]
		} else {
			c.found.Unlinked++
		}
		if h.rightmost {
			break
		}
		if !item.Below(h.low, h.high) {
			return fmt.Errorf("node %v of level %d has fences %x and %x", a, level, h.low, h.high)
		}
		a, low = h.sibling, bytes.Clone(h.high)
	}
	if len(known) > 0 {
		c.fault("node %v, which level %d knows, is not on level %d or not in its place", known[0].addr, level+1, level)
	}
	return nil
}

// node reads a node and checks what is in it.
func (c *checker) node(a pool.Addr, level uint8) (*header, error) {
	if level > 0 {
		n, err := c.s.readInner(a, level)
		if err != nil {
			return nil, err
		}
		c.inner(n)
		return &header{low: n.low, high: n.high, rightmost: n.rightmost, sibling: n.sibling}, nil
	}
	for {
		if err := c.s.Read(a, c.s.node); err != nil {
			return nil, err
		}
		var l leaf
		if l.open(c.s.lay, a, c.s.node) {
			if l.collect(&c.s.pairs) {
				return &l.header, c.leaf(&l, &c.s.pairs)
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

func (c *checker) leaf(l *leaf, p *pairs) error {
	p.sort()
	for i := range p.list {
		key, value := p.pair(i)
		if item.Below(key, l.low) || l.above(key) {
			c.fault("leaf %v of %x to %x has key %x", l.addr, l.low, l.high, key)
		}
		if i > 0 && !item.Below(p.key(i-1), key) {
			c.fault("leaf %v has key %x twice", l.addr, key)
		}
		length := len(value)
		if at, ok := blocks.ReferenceIn(&l.lay.Codec, p.Entry(i)); ok {
			if length = at.Length; length > l.lay.MaxValue {
				c.fault("leaf %v has a value of %d bytes", l.addr, length)
				continue
			}
			if err := c.block(l, &at); err != nil {
				return err
			}
		}
		c.found.Pairs++
		c.found.PairBytes += uint64(len(key) + length)
	}
	var used heapMap
	for i := range l.count {
		w := l.slot(i)
		first, end := slotOffset(w)/grain, (slotOffset(w)+slotLength(w)+grain-1)/grain
		if slotLength(w) != 0 && used.next(first, end, true) != end {
			c.fault("leaf %v: the entry of slot %d lies over another one", l.addr, i)
		}
		used.mark(first, end-first)
	}
	return nil
}

// block checks the block that a leaf's entry refers to.
func (c *checker) block(l *leaf, r *blocks.Reference) error {
	c.blocks = append(c.blocks, r.Addr)
	ok, err := c.s.Blocks.Load(r)
	if err != nil {
		return err
	}
	if !ok {
		c.fault("leaf %v: the block at %v is not what its entry says: %w", l.addr, r.Addr, index.ErrFormat)
	}
	c.found.Blocks++
	c.found.BlockBytes += uint64(r.Size)
	return nil
}
