package smart

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/checker"
	"github.com/dmindex/dmindex/pkg/pool"
)

// walker checks the whole tree, node by node in the order of keys.
type walker struct {
	s      *Session
	report checker.Report
	frames []*frame // one for each level
	path   []byte   // the bytes that all keys below the node have which is looked at
	key    []byte
}

// Check implements index.Checker. Nobody changes the tree meanwhile, so what a client left that
// died may be there, but nothing that is under way: frozen nodes, nodes with few children, leaves
// that are gone or moved. Of invariants I1 to I5 in docs/design/smart.md it checks what one moment
// shows:
//
//   - nodes and leaves verify, and none is a dead mark (I1, I5);
//   - a node has each partial key once, and in a searched one no filled slot lies behind an empty
//     one (I3); in one of type direct each lies in its own slot;
//   - all keys below a node have the bytes of the slots and prefixes that lead there (I4);
//   - a slot says of its child what the child says of itself;
//   - nothing is in the tree twice.
func (t *Tree) Check() (index.Structure, error) {
	s, err := t.newSession()
	if err != nil {
		return index.Structure{}, err
	}
	c := &walker{s: s}
	s.Begin()
	if err = c.roots(); err == nil {
		err = c.node(t.rootSlot(), 0, -1)
	}
	c.report.Finish()
	return c.report.Found, errors.Join(err, c.report.Err(), s.Close())
}

// Verifies implements index.Checker.
func (t *Tree) Verifies(a pool.Addr, node []byte) bool {
	var h head
	var l leaf
	return h.decode(t.lay.sums, node, a) || l.open(t.lay.sums, node, a) == whole
}

// roots notes the roots that were replaced, and learns where the root is.
func (c *walker) roots() error {
	if err := c.s.readRoot(); err != nil {
		return err
	}
	n := 0
	for a := c.s.t.first; a != c.s.t.rootAddr(); n++ {
		if n > mostRoots {
			return leadsBack(a)
		}
		if err := c.s.Read(a, c.s.node[:rootBytes]); err != nil {
			return err
		}
		if !c.s.fresh.decode(c.s.lay, a, direct, c.s.node) {
			return fmt.Errorf("root %v, which was replaced, does not verify: %w", a, index.ErrFormat)
		}
		if !c.s.fresh.allFrozen() {
			c.report.Fault("root %v was replaced, and is not frozen", a)
		}
		c.report.Node(a, allocatedFor(rootBytes), index.KindInner)
		a = wayOf(c.s.node).addr()
	}
	return nil
}

// readFrame READs the node where w leads to f.
func (s *Session) readFrame(f *frame, w slot) error {
	for {
		if err := s.Read(w.addr(), s.node[:nodeType(w.code()).bytes()]); err != nil {
			return err
		}
		if f.take(s.lay, w, s.node); !f.dead {
			return nil
		}
		if err := s.Reread(w.addr()); err != nil {
			return err
		}
	}
}

// node checks the node of slot w, of a level, whose parent's prefix ends at end.
func (c *walker) node(w slot, level, end int) error {
	if level == len(c.frames) {
		c.frames = append(c.frames, new(frame))
	}
	f := c.frames[level]
	if err := c.s.readFrame(f, w); err != nil {
		return err
	}
	size := allocatedFor(f.kind.bytes())
	if level == 0 {
		size = allocatedFor(rootBytes)
	}
	c.report.Node(w.addr(), size, index.KindInner)
	c.report.Found.Levels = max(c.report.Found.Levels, level+1)
	if !c.prefix(f, w.addr(), end) {
		return nil // what is below would be wrong as well
	}
	c.slots(f, w.addr())
	if err := c.leaves(f, level); err != nil {
		return err
	}
	n := len(c.path)
	for b := f.from(beforeAll, false); b != behindAll; b = f.from(b+1, false) {
		if v := f.word(b); v.inner() && !c.s.lay.damaged(v, b == endBranch) {
			c.path = append(c.path[:n], byte(b))
			if err := c.node(v, level+1, f.end()); err != nil {
				return err
			}
		}
	}
	c.path = c.path[:n]
	return nil
}

// prefix checks the head of f, and makes path what it says. It reports false if they differ.
func (c *walker) prefix(f *frame, a pool.Addr, end int) bool {
	known := len(c.path) - int(f.depth) // bytes of the prefix that the path has
	if int(f.depth) > len(c.path) || int(f.length) < known || f.end() <= end || !bytes.Equal(c.path[f.depth:], f.head.prefix[:known]) {
		c.report.Fault("node %v has prefix %x at %d, and is where keys begin with %x", a, f.head.prefix[:f.length], f.depth, c.path)
		return false
	}
	c.path = append(c.path, f.head.prefix[known:f.length]...)
	if len(c.path) > c.s.lay.MaxKey {
		c.report.Fault("node %v is for keys that begin with %x, keys have at most %d bytes", a, c.path, c.s.lay.MaxKey)
		return false
	}
	return true
}

// slots checks the words of f.
func (c *walker) slots(f *frame, a pool.Addr) {
	var seen [256]bool
	empty := false
	for i, w := range f.words {
		switch {
		case w.empty():
			empty = empty || i >= f.base
			continue
		case c.s.lay.damaged(w, i < f.base):
			c.report.Fault("node %v: slot %d says %#x, which leads to nothing that there is", a, i, uint64(w))
		case i < f.base:
			if w.key() != 0 {
				c.report.Fault("node %v: its end slot has partial key %02x", a, w.key())
			}
			continue
		case f.kind == direct && int(w.key()) != i-f.base:
			c.report.Fault("node %v: slot %d has partial key %02x", a, i, w.key())
		case f.kind != direct && empty:
			c.report.Fault("node %v: slot %d is filled, and one before it is empty", a, i)
		case seen[w.key()]:
			c.report.Fault("node %v has partial key %02x twice", a, w.key())
		}
		seen[w.key()] = true
	}
}

// leaves checks the leaves of f.
func (c *walker) leaves(f *frame, level int) error {
	for b := f.from(beforeAll, false); b != behindAll; {
		c.s.ring.reset()
		first := b
		for ; b != behindAll; b = f.from(b+1, false) {
			if w := f.word(b); w.leaf() && !c.s.lay.damaged(w, b == endBranch) && c.s.fetch(w, 0, w.leafBytes()) < 0 {
				break
			}
		}
		if err := c.s.fetchAll(mostGap); err != nil {
			return err
		}
		for i, b := 0, first; i < c.s.ring.n; b = f.from(b+1, false) {
			if w := f.word(b); w.leaf() && !c.s.lay.damaged(w, b == endBranch) {
				if err := c.leaf(f, b, w, i); err != nil {
					return err
				}
				c.report.Found.Levels = max(c.report.Found.Levels, level+2)
				i++
			}
		}
	}
	return nil
}

// leaf checks the leaf of slot w at branch b of f, which the i-th READ got.
func (c *walker) leaf(f *frame, b int, w slot, i int) error {
	var l leaf
	v, err := c.s.openLeaf(&l, i)
	for err == nil {
		c.report.Node(w.addr(), allocatedFor(w.leafBytes()), index.KindLeaf)
		if v == out {
			c.report.Fault("leaf %v is in the tree, and marked dead", w.addr())
			return nil
		}
		if leafCode(l.bytes()) != int(w.code()) {
			c.report.Fault("leaf %v has %d bytes, its slot says %d", l.at, l.bytes(), w.leafBytes())
		}
		c.key = l.appendKey(c.key[:0])
		n := len(c.path)
		if len(c.key) > c.s.lay.MaxKey || !bytes.HasPrefix(c.key, c.path) || branch(c.key, n) != b {
			c.report.Fault("leaf %v has key %x, and is at branch %d where keys begin with %x", l.at, c.key, b, c.path)
		}
		switch l.ctl.state() {
		case gone, dead:
			return nil
		case alive:
			return c.pair(&l)
		}
		// The new leaf is known only by the one that moved.
		c.report.Found.Unlinked++
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
			c.report.Fault("leaf %v has a value of %d bytes in it, at most %d may be", l.at, len(v), c.s.lay.Inline)
		}
		c.report.Pair(l.key, len(v))
		return nil
	}
	r := reference(v)
	if !c.s.lay.Blocks || r.Length > c.s.lay.MaxValue {
		c.report.Fault("leaf %v refers to a block of %d bytes", l.at, r.Length)
		return nil
	}
	c.report.Pair(l.key, r.Length)
	return c.report.Block(l.at, &r, &c.s.blocks)
}

// Survey implements index.Surveyor. A leaf has one pair, and its range begins at the bytes that its
// place in the tree stands for, not at its key, which a survey does not READ. An index without
// leaves has the range of its root.
func (t *Tree) Survey(visit func(low []byte, bytes int) error) error {
	s, err := t.newSession()
	if err != nil {
		return err
	}
	c := &walker{s: s}
	s.Begin()
	if err = s.readRoot(); err == nil {
		err = c.survey(nil, pool.Nil, t.rootSlot(), 0, visit)
	}
	if err == nil && c.key == nil {
		err = visit(c.low(nil), allocatedFor(direct.bytes()))
	}
	return errors.Join(err, s.Close())
}

// survey visits what is below the node where w leads, which is a slot of the node at a with head p;
// nil = it is the root.
func (c *walker) survey(p *head, a pool.Addr, w slot, level int, visit func(low []byte, bytes int) error) error {
	if level == len(c.frames) {
		c.frames = append(c.frames, new(frame))
	}
	f := c.frames[level]
	if err := c.s.readFrame(f, w); err != nil {
		return err
	}
	if p != nil && !f.under(p) {
		return isAstray(a, p, w, &f.head)
	}
	n := len(c.path)
	if depth := int(f.depth); depth <= n && f.end() >= n {
		c.path = append(c.path, f.head.prefix[n-depth:f.length]...)
	}
	at := len(c.path)
	for b := f.from(beforeAll, false); b != behindAll; b = f.from(b+1, false) {
		c.path = c.path[:at]
		if b != endBranch {
			c.path = append(c.path, byte(b))
		}
		var err error
		if v := f.word(b); c.s.lay.damaged(v, b == endBranch) {
			err = isDamaged(w.addr(), v)
		} else if v.inner() {
			err = c.survey(&f.head, w.addr(), v, level+1, visit)
		} else {
			err = visit(c.low(c.path), allocatedFor(v.leafBytes()))
		}
		if err != nil {
			return err
		}
	}
	c.path = c.path[:n]
	return nil
}

// low is the lowest key that begins with path.
func (c *walker) low(path []byte) []byte {
	c.key = append(c.key[:0], path...)
	for len(c.key) < len(c.s.lay.Bottom) {
		c.key = append(c.key, 0)
	}
	if c.key == nil {
		c.key = []byte{}
	}
	return c.key
}
