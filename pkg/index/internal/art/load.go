package art

import (
	"fmt"
	"slices"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/loader"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Bulk load. The caller's goroutine makes leaves in the order of their keys. The inner nodes above
// them are made bottom-up, each of the type that its children take; sessions of their own WRITE all
// of it, many in one list (package loader). Nobody can find what they write, until the empty root
// is replaced (root.go): all of its slots are frozen, and its way is set to the root of what was
// loaded. Setting the way is the moment at which the load takes effect. A loader that dies before
// leaves a root that is empty, and perhaps frozen; who inserts then replaces it.

// homeLeaves is how many leaves of one pair lie on one memory server before the next one's turn
// comes. A node lies where most of what is below it lies. Leaves with ranges have many pairs: they
// take turns one by one, and a node lies where the last leaf below it lies.
const homeLeaves = 1 << 12

// Builder is a bulk load under way.
type Builder struct {
	*loader.Load
	s    *Session // its operation replaces the root
	gone func(w Slot) (bool, error)

	open []*opened // the nodes that lead to the last leaf, from the root on
	free []*opened
	last []byte // key of the last leaf
	word Slot   // of what was made last, which has no parent yet; lacks the partial key
	home pool.Addr
	n    int         // leaves
	on   []pool.Addr // of each memory server that has something of it, one address
}

// opened is a node that is being filled.
type opened struct {
	end      int  // of its prefix
	ending   Slot // of the key that ends here; 0 = there is none
	children []Slot
}

// NewBuilder makes a builder. s replaces the root, and the sessions of ld WRITE all else. gone
// reports whether the leaf of a slot that is left in an empty root has nothing, and never will.
func (s *Session) NewBuilder(ld *loader.Load, gone func(w Slot) (bool, error)) *Builder {
	return &Builder{Load: ld, s: s, gone: gone}
}

// Run loads what fill adds, and publishes; on an error before that it gives back what was
// allocated.
func (ld *Builder) Run(fill func() error) error {
	s := ld.s
	s.Begin()
	err := ld.emptyRoot()
	s.End()
	if err != nil {
		return err
	}
	err = fill()
	top := pool.Nil
	if err == nil && ld.n > 0 {
		if top, err = ld.finish(); err == nil {
			err = ld.HandOver()
		}
	}
	if e := ld.Wait(); err == nil {
		err = e
	}
	published := false
	if err == nil && ld.n > 0 {
		published, err = ld.publish(top)
	}
	if !published {
		ld.GiveBack(&s.Op)
	}
	return err
}

// Next closes the nodes that do not lead to key, that of the next leaf. The leaf is made then, and
// Leaf is told.
func (ld *Builder) Next(key []byte) error {
	if ld.n == 0 {
		ld.push(0)
	} else {
		if !item.Below(ld.last, key) {
			return fmt.Errorf("key %s comes after key %s, keys must ascend: %w", keyrange.Quote(key), keyrange.Quote(ld.last), index.ErrUnsorted)
		}
		if err := ld.closeTo(item.CommonPrefix(ld.last, key)); err != nil {
			return err
		}
	}
	if ld.n%homeLeaves == 0 || ld.s.t.lay.LeafBytes > 0 {
		ld.home = pool.Nil
	}
	ld.last = append(ld.last[:0], key...)
	return nil
}

// Leaf notes that the next leaf was made. Its word lacks the partial key.
func (ld *Builder) Leaf(w Slot) error {
	ld.word = w
	ld.n++
	return ld.MayHandOver()
}

// top is the lowest node that is open.
func (ld *Builder) top() *opened { return ld.open[len(ld.open)-1] }

// push opens a node whose prefix ends at end.
func (ld *Builder) push(end int) {
	n := new(opened)
	if k := len(ld.free); k > 0 {
		n, ld.free = ld.free[k-1], ld.free[:k-1]
	}
	n.end, n.ending, n.children = end, 0, n.children[:0]
	ld.open = append(ld.open, n)
}

// attach makes what was made last a child of the lowest open node.
func (ld *Builder) attach() {
	n := ld.top()
	w := ld.s.t.lay.hang(ld.word, ld.last, n.end)
	if Branch(ld.last, n.end) == EndBranch {
		n.ending = w
	} else {
		n.children = append(n.children, w)
	}
}

// closeTo closes the nodes below the place where the last key and the next one part. What was made
// last then is a child of a node that branches there.
func (ld *Builder) closeTo(parts int) error {
	for n := ld.top(); n.end > parts; n = ld.top() {
		ld.attach()
		above := max(parts, ld.open[len(ld.open)-2].end)
		if err := ld.close(n, above+1); err != nil {
			return err
		}
	}
	if ld.top().end < parts {
		ld.push(parts)
	}
	ld.attach()
	return nil
}

// finish closes all nodes and returns where the root lies.
func (ld *Builder) finish() (pool.Addr, error) {
	if err := ld.closeTo(0); err != nil {
		return pool.Nil, err
	}
	a, err := ld.AllocateBlock(RootBytes, ld.home)
	if err != nil {
		return pool.Nil, err
	}
	ld.Note(a)
	n, base := ld.top(), ld.s.t.lay.Base()
	ld.Batch.AddImage(a, RootBytes, func(b []byte) int {
		b = buildRoot(ld.s.t.lay.Sums, b, a, unit.NewVersion(ld.s.t.Env))
		n.put(b, base, Direct)
		return len(b)
	})
	return a, nil
}

// put puts the children of n into b, a node of a type.
func (n *opened) put(b []byte, base int, t NodeType) {
	if n.ending != 0 {
		putSlot(b, 0, n.ending)
	}
	for i, w := range n.children {
		if t == Direct {
			i = int(w.Key())
		}
		putSlot(b, base+i, w)
	}
}

// close makes the image of n, the lowest open node, which has all of its children. Its parent's
// slots stand for the bytes before from. Where its prefix is too long for one node, nodes with one
// child stand above it.
func (ld *Builder) close(n *opened, from int) error {
	base := ld.s.t.lay.Base()
	k := len(n.children)
	with := &ld.s.t.with
	h, most := Header{Outline: Outline{Kind: with.typeFor(base + k + k/8)}}, with.longestPrefix()
	depth := from + (n.end-from)/(most+1)*(most+1)
	h.setPrefix(depth, ld.last[depth:n.end])
	err := ld.node(&h, func(b []byte) { n.put(b, base, h.Kind) })
	for err == nil && depth > from {
		depth -= most + 1
		h = Header{Outline: Outline{Kind: with.typeFor(0)}}
		h.setPrefix(depth, ld.last[depth:depth+most])
		below, br, next := ld.word, int(ld.last[depth+most]), base
		err = ld.node(&h, func(b []byte) { putChild(b, h.Kind, base, &next, br, below) })
	}
	ld.open, ld.free = ld.open[:len(ld.open)-1], append(ld.free, n)
	return err
}

// node adds a node to the batch. put gives it its children.
func (ld *Builder) node(h *Header, put func(b []byte)) error {
	a, at, err := ld.Room(h.Kind.Bytes())
	if err != nil {
		return err
	}
	ld.Batch.AddImage(a, h.Kind.Bytes(), func(b []byte) int {
		put(h.Build(ld.s.t.lay.Sums, b, a, unit.NewVersion(ld.s.t.Env)))
		return h.Kind.Bytes()
	})
	ld.word = InnerSlot(0, h.Kind, at)
	return ld.MayHandOver()
}

// Room allocates a node or leaf of which so many bytes are READ.
func (ld *Builder) Room(bytes int) (pool.Addr, Slot, error) {
	a, err := ld.AllocateBlock(AllocatedFor(bytes), ld.home)
	if err != nil {
		return pool.Nil, 0, err
	}
	ld.Note(a)
	if ld.home == pool.Nil {
		ld.home = a
	}
	at, ok := Pack(a)
	if !ok {
		return pool.Nil, 0, Beyond(a)
	}
	return a, at, nil
}

// Note notes that something of the load lies at a.
func (ld *Builder) Note(a pool.Addr) {
	if !slices.ContainsFunc(ld.on, func(b pool.Addr) bool { return b.Server() == a.Server() }) {
		ld.on = append(ld.on, a)
	}
}
