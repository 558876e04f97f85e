package art

import (
	"bytes"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/checker"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Walker goes through a whole tree, node by node in the order of keys.
type Walker struct {
	// Report is what is found.
	Report checker.Report
	// Path is the bytes that all keys below the node have which is looked at.
	Path []byte

	s      *Session
	leaves LeafChecker
	frames []*Frame // one for each level
	key    []byte
}

// LeafChecker checks leaves.
type LeafChecker interface {
	// CheckLeaves checks the leaves of f, a node of a level, of which the root's is 0.
	CheckLeaves(f *Frame, level int) error
}

// NewWalker makes a walker, which has an operation of s for itself.
func (s *Session) NewWalker(leaves LeafChecker) *Walker { return &Walker{s: s, leaves: leaves} }

// Check checks the whole tree, and closes the report. Nobody changes the tree meanwhile, so what a
// client left that died may be there, but nothing that is under way: frozen nodes, nodes with few
// children. Of invariants I1 to I5 in docs/design/smart.md it checks what one moment shows:
//
//   - nodes verify, and none is a dead mark (I1);
//   - a node has each partial key once, and in a searched one no filled slot lies behind an empty
//     one (I3); in one of type direct each lies in its own slot;
//   - all keys below a node have the bytes of the slots and prefixes that lead there (I4);
//   - a slot says of its child what the child says of itself;
//   - nothing is in the tree twice.
func (c *Walker) Check() error {
	err := c.roots()
	if err == nil {
		err = c.node(c.s.t.RootSlot(), 0, -1)
	}
	c.Report.Finish()
	return err
}

// roots notes the roots that were replaced, and learns where the root is.
func (c *Walker) roots() error {
	if err := c.s.readRoot(); err != nil {
		return err
	}
	n := 0
	for a := c.s.t.First; a != c.s.t.RootAddr(); n++ {
		if n > mostRoots {
			return leadsBack(a)
		}
		if err := c.s.Read(a, c.s.Node[:RootBytes]); err != nil {
			return err
		}
		if !c.s.Fresh.Decode(&c.s.t.lay, a, Direct, c.s.Node) {
			return fmt.Errorf("root %v, which was replaced, does not verify: %w", a, index.ErrFormat)
		}
		if !c.s.Fresh.allFrozen() {
			c.Report.Fault("root %v was replaced, and is not frozen", a)
		}
		c.Report.Node(a, AllocatedFor(RootBytes), index.KindInner)
		a = WayOf(c.s.Node).Addr()
	}
	return nil
}

// node checks the node of slot w, of a level, whose parent's prefix ends at end.
func (c *Walker) node(w Slot, level, end int) error {
	if level == len(c.frames) {
		c.frames = append(c.frames, new(Frame))
	}
	f := c.frames[level]
	if err := c.s.readFrame(f, w); err != nil {
		return err
	}
	size := AllocatedFor(f.Kind.Bytes())
	if level == 0 {
		size = AllocatedFor(RootBytes)
	}
	c.Report.Node(w.Addr(), size, index.KindInner)
	c.Report.Found.Levels = max(c.Report.Found.Levels, level+1)
	if !c.prefix(f, w.Addr(), end) {
		return nil // what is below would be wrong as well
	}
	c.slots(f, w.Addr())
	if err := c.leaves.CheckLeaves(f, level); err != nil {
		return err
	}
	n := len(c.Path)
	for b := f.From(BeforeAll, false); b != BehindAll; b = f.From(b+1, false) {
		if v := f.Word(b); v.Inner() && !c.s.t.lay.Damaged(v, b == EndBranch) {
			c.Path = append(c.Path[:n], byte(b))
			if err := c.node(v, level+1, f.End()); err != nil {
				return err
			}
		}
	}
	c.Path = c.Path[:n]
	return nil
}

// prefix checks the head of f, and makes path what it says. It reports false if they differ.
func (c *Walker) prefix(f *Frame, a pool.Addr, end int) bool {
	known := len(c.Path) - int(f.Depth) // bytes of the prefix that the path has
	if int(f.Depth) > len(c.Path) || int(f.Length) < known || f.End() <= end || !bytes.Equal(c.Path[f.Depth:], f.Header.Prefix[:known]) {
		c.Report.Fault("node %v has prefix %x at %d, and is where keys begin with %x", a, f.Header.Prefix[:f.Length], f.Depth, c.Path)
		return false
	}
	c.Path = append(c.Path, f.Header.Prefix[known:f.Length]...)
	if len(c.Path) > c.s.t.longest {
		c.Report.Fault("node %v is for keys that begin with %x, keys have at most %d bytes", a, c.Path, c.s.t.longest)
		return false
	}
	return true
}

// slots checks the words of f.
func (c *Walker) slots(f *Frame, a pool.Addr) {
	var seen [256]bool
	empty := false
	for i, w := range f.Words {
		switch {
		case w.Empty():
			empty = empty || i >= f.Base
			continue
		case c.s.t.lay.Damaged(w, i < f.Base):
			c.Report.Fault("node %v: slot %d says %#x, which leads to nothing that there is", a, i, uint64(w))
		case i < f.Base:
			if w.Key() != 0 {
				c.Report.Fault("node %v: its end slot has partial key %02x", a, w.Key())
			}
			continue
		case f.Kind == Direct && int(w.Key()) != i-f.Base:
			c.Report.Fault("node %v: slot %d has partial key %02x", a, i, w.Key())
		case f.Kind != Direct && empty:
			c.Report.Fault("node %v: slot %d is filled, and one before it is empty", a, i)
		case seen[w.Key()]:
			c.Report.Fault("node %v has partial key %02x twice", a, w.Key())
		}
		seen[w.Key()] = true
	}
}
