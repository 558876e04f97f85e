package smart

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/checker"
	"github.com/dmindex/dmindex/pkg/pool"
)

// walker checks the whole tree, node by node in the order of keys.
type walker struct {
	s      *Session
	report checker.Report
	frames []*art.Frame // one for each level
	path   []byte       // the bytes that all keys below the node have which is looked at
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
		err = c.node(t.RootSlot(), 0, -1)
	}
	c.report.Finish()
	return c.report.Found, errors.Join(err, c.report.Err(), s.Close())
}

// Verifies implements index.Checker.
func (t *Tree) Verifies(a pool.Addr, node []byte) bool {
	var h art.Header
	var l leaf
	return h.Decode(t.lay.Sums, node, a) || l.open(t.lay.Sums, node, a) == whole
}

// roots notes the roots that were replaced, and learns where the root is.
func (c *walker) roots() error {
	if err := c.s.ReadRoot(); err != nil {
		return err
	}
	n := 0
	for a := c.s.t.First; a != c.s.t.RootAddr(); n++ {
		if n > art.MostRoots {
			return art.LeadsBack(a)
		}
		if err := c.s.Read(a, c.s.Node[:art.RootBytes]); err != nil {
			return err
		}
		if !c.s.Fresh.Decode(&c.s.lay.Layout, a, art.Direct, c.s.Node) {
			return fmt.Errorf("root %v, which was replaced, does not verify: %w", a, index.ErrFormat)
		}
		if !c.s.Fresh.AllFrozen() {
			c.report.Fault("root %v was replaced, and is not frozen", a)
		}
		c.report.Node(a, art.AllocatedFor(art.RootBytes), index.KindInner)
		a = art.WayOf(c.s.Node).Addr()
	}
	return nil
}

// node checks the node of slot w, of a level, whose parent's prefix ends at end.
func (c *walker) node(w art.Slot, level, end int) error {
	if level == len(c.frames) {
		c.frames = append(c.frames, new(art.Frame))
	}
	f := c.frames[level]
	if err := c.s.ReadFrame(f, w); err != nil {
		return err
	}
	size := art.AllocatedFor(f.Kind.Bytes())
	if level == 0 {
		size = art.AllocatedFor(art.RootBytes)
	}
	c.report.Node(w.Addr(), size, index.KindInner)
	c.report.Found.Levels = max(c.report.Found.Levels, level+1)
	if !c.prefix(f, w.Addr(), end) {
		return nil // what is below would be wrong as well
	}
	c.slots(f, w.Addr())
	if err := c.leaves(f, level); err != nil {
		return err
	}
	n := len(c.path)
	for b := f.From(art.BeforeAll, false); b != art.BehindAll; b = f.From(b+1, false) {
		if v := f.Word(b); v.Inner() && !c.s.lay.Damaged(v, b == art.EndBranch) {
			c.path = append(c.path[:n], byte(b))
			if err := c.node(v, level+1, f.End()); err != nil {
				return err
			}
		}
	}
	c.path = c.path[:n]
	return nil
}

// prefix checks the head of f, and makes path what it says. It reports false if they differ.
func (c *walker) prefix(f *art.Frame, a pool.Addr, end int) bool {
	known := len(c.path) - int(f.Depth) // bytes of the prefix that the path has
	if int(f.Depth) > len(c.path) || int(f.Length) < known || f.End() <= end || !bytes.Equal(c.path[f.Depth:], f.Header.Prefix[:known]) {
		c.report.Fault("node %v has prefix %x at %d, and is where keys begin with %x", a, f.Header.Prefix[:f.Length], f.Depth, c.path)
		return false
	}
	c.path = append(c.path, f.Header.Prefix[known:f.Length]...)
	if len(c.path) > c.s.lay.MaxKey {
		c.report.Fault("node %v is for keys that begin with %x, keys have at most %d bytes", a, c.path, c.s.lay.MaxKey)
		return false
	}
	return true
}

// slots checks the words of f.
func (c *walker) slots(f *art.Frame, a pool.Addr) {
	var seen [256]bool
	empty := false
	for i, w := range f.Words {
		switch {
		case w.Empty():
			empty = empty || i >= f.Base
			continue
		case c.s.lay.Damaged(w, i < f.Base):
			c.report.Fault("node %v: slot %d says %#x, which leads to nothing that there is", a, i, uint64(w))
		case i < f.Base:
			if w.Key() != 0 {
				c.report.Fault("node %v: its end slot has partial key %02x", a, w.Key())
			}
			continue
		case f.Kind == art.Direct && int(w.Key()) != i-f.Base:
			c.report.Fault("node %v: slot %d has partial key %02x", a, i, w.Key())
		case f.Kind != art.Direct && empty:
			c.report.Fault("node %v: slot %d is filled, and one before it is empty", a, i)
		case seen[w.Key()]:
			c.report.Fault("node %v has partial key %02x twice", a, w.Key())
		}
		seen[w.Key()] = true
	}
}

// leaves checks the leaves of f.
func (c *walker) leaves(f *art.Frame, level int) error {
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
				c.report.Found.Levels = max(c.report.Found.Levels, level+2)
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
		c.report.Node(w.Addr(), art.AllocatedFor(w.LeafBytes()), index.KindLeaf)
		if v == out {
			c.report.Fault("leaf %v is in the tree, and marked dead", w.Addr())
			return nil
		}
		if art.LeafCode(l.bytes()) != int(w.Code()) {
			c.report.Fault("leaf %v has %d bytes, its slot says %d", l.at, l.bytes(), w.LeafBytes())
		}
		c.key = l.appendKey(c.key[:0])
		n := len(c.path)
		if len(c.key) > c.s.lay.MaxKey || !bytes.HasPrefix(c.key, c.path) || art.Branch(c.key, n) != b {
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
	return c.report.Block(l.at, &r, &c.s.Blocks)
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
	if err = s.ReadRoot(); err == nil {
		err = c.survey(nil, pool.Nil, t.RootSlot(), 0, visit)
	}
	if err == nil && c.key == nil {
		err = visit(c.low(nil), art.AllocatedFor(art.Direct.Bytes()))
	}
	return errors.Join(err, s.Close())
}

// survey visits what is below the node where w leads, which is a slot of the node at a with head p;
// nil = it is the root.
func (c *walker) survey(p *art.Header, a pool.Addr, w art.Slot, level int, visit func(low []byte, bytes int) error) error {
	if level == len(c.frames) {
		c.frames = append(c.frames, new(art.Frame))
	}
	f := c.frames[level]
	if err := c.s.ReadFrame(f, w); err != nil {
		return err
	}
	if p != nil && !f.Under(p) {
		return art.IsAstray(a, p, w, &f.Header)
	}
	n := len(c.path)
	if depth := int(f.Depth); depth <= n && f.End() >= n {
		c.path = append(c.path, f.Header.Prefix[n-depth:f.Length]...)
	}
	at := len(c.path)
	for b := f.From(art.BeforeAll, false); b != art.BehindAll; b = f.From(b+1, false) {
		c.path = c.path[:at]
		if b != art.EndBranch {
			c.path = append(c.path, byte(b))
		}
		var err error
		if v := f.Word(b); c.s.lay.Damaged(v, b == art.EndBranch) {
			err = art.IsDamaged(w.Addr(), v)
		} else if v.Inner() {
			err = c.survey(&f.Header, w.Addr(), v, level+1, visit)
		} else {
			err = visit(c.low(c.path), art.AllocatedFor(v.LeafBytes()))
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
