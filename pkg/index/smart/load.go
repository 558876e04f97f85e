package smart

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/loader"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Bulk load. The caller's goroutine cuts the stream of pairs into leaves, and makes the inner nodes
// above them bottom-up, each of the type that its children take; sessions of their own WRITE them,
// many in one list (package loader). Nobody can find what they write, until the empty root is
// replaced (art/root.go): all of its slots are frozen, and its way is set to the root of what was
// loaded. Setting the way is the moment at which the load takes effect. A loader that dies before
// leaves a root that is empty, and perhaps frozen; who inserts then replaces it.

// maxLoaders bounds the sessions of one bulk load.
const maxLoaders = 64

// homePairs is how many pairs lie on one memory server before the next one's turn comes. A node
// lies where most of what is below it lies.
const homePairs = 1 << 12

// builder is a bulk load under way.
type builder struct {
	*loader.Load
	t *Tree
	s *Session // its operation replaces the root

	open []*opened // the nodes that lead to the last pair, from the root on
	free []*opened
	last []byte   // key of the last pair
	word art.Slot // of what was made last, which has no parent yet; lacks the partial key
	home pool.Addr
	n    int         // pairs
	on   []pool.Addr // of each memory server that has something of it, one address
}

// opened is a node that is being filled.
type opened struct {
	end      int      // of its prefix
	ending   art.Slot // of the key that ends here; 0 = there is none
	children []art.Slot
}

// BulkLoad implements index.Index.
func (t *Tree) BulkLoad(source index.Pairs, parallel int) error {
	t.sweeps.load(1)
	defer t.sweeps.load(-1)
	ld, err := t.newBuilder(min(max(1, parallel), maxLoaders))
	if err != nil {
		return fmt.Errorf("bulk load: %w", err)
	}
	err = ld.run(source)
	closing := errors.Join(ld.s.Close(), ld.Close())
	if err != nil { // a load that took effect has not failed, however its sessions end
		return fmt.Errorf("bulk load: %w", errors.Join(err, closing))
	}
	return nil
}

// newBuilder makes a builder with its sessions at work.
func (t *Tree) newBuilder(parallel int) (*builder, error) {
	ld := &builder{t: t}
	var err error
	if ld.s, err = t.newSession(); err != nil {
		return nil, err
	}
	largest := max(art.RootBytes, t.lay.maxRead)
	var all []loader.Session
	for range parallel {
		s, err := t.newSession()
		if err != nil {
			err = errors.Join(err, ld.s.Close())
			for _, s := range all {
				err = errors.Join(err, s.Close())
			}
			return nil, err
		}
		all = append(all, loader.Session{Op: &s.Op, Blocks: &s.Blocks, Room: s.ring.room, Largest: largest, Close: s.Close})
	}
	ld.Load = loader.New(t.Pool, all, func() loader.Leaves { return &loadLeaves{lay: &t.lay} })
	return ld, nil
}

// run loads and publishes; on an error before that it gives back what was allocated.
func (ld *builder) run(source index.Pairs) error {
	s := ld.s
	s.Begin()
	err := s.emptyRoot()
	s.End()
	if err != nil {
		return err
	}
	var failed error
	err = source(func(key, value []byte) bool {
		failed = ld.add(key, value)
		return failed == nil
	})
	if failed != nil {
		err = failed
	}
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

// add passes the next pair on.
func (ld *builder) add(key, value []byte) error {
	if err := ld.t.lay.CheckPair(key, value); err != nil {
		return err
	}
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
	if ld.n%homePairs == 0 {
		ld.home = pool.Nil
	}
	if err := ld.leaf(key, value); err != nil {
		return err
	}
	ld.last = append(ld.last[:0], key...)
	ld.n++
	return ld.MayHandOver()
}

// top is the lowest node that is open.
func (ld *builder) top() *opened { return ld.open[len(ld.open)-1] }

// push opens a node whose prefix ends at end.
func (ld *builder) push(end int) {
	n := new(opened)
	if k := len(ld.free); k > 0 {
		n, ld.free = ld.free[k-1], ld.free[:k-1]
	}
	n.end, n.ending, n.children = end, 0, n.children[:0]
	ld.open = append(ld.open, n)
}

// attach makes what was made last a child of the lowest open node.
func (ld *builder) attach() {
	n := ld.top()
	if b := art.Branch(ld.last, n.end); b == art.EndBranch {
		n.ending = ld.word
	} else {
		n.children = append(n.children, ld.word.WithKey(byte(b)))
	}
}

// closeTo closes the nodes below the place where the last key and the next one part. What was made
// last then is a child of a node that branches there.
func (ld *builder) closeTo(parts int) error {
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
func (ld *builder) finish() (pool.Addr, error) {
	if err := ld.closeTo(0); err != nil {
		return pool.Nil, err
	}
	a, err := ld.AllocateBlock(art.RootBytes, ld.home)
	if err != nil {
		return pool.Nil, err
	}
	ld.note(a)
	n, base := ld.top(), ld.t.lay.Base()
	ld.Batch.AddImage(a, art.RootBytes, func(b []byte) int {
		b = art.BuildRoot(ld.t.lay.Sums, b, a, unit.NewVersion(ld.t.Env))
		n.put(b, base, art.Direct)
		return len(b)
	})
	return a, nil
}

// put puts the children of n into b, a node of a type.
func (n *opened) put(b []byte, base int, t art.NodeType) {
	if n.ending != 0 {
		art.PutSlot(b, 0, n.ending)
	}
	for i, w := range n.children {
		if t == art.Direct {
			i = int(w.Key())
		}
		art.PutSlot(b, base+i, w)
	}
}

// close makes the image of n, the lowest open node, which has all of its children. Its parent's
// slots stand for the bytes before from. Where its prefix is too long for one node, nodes with one
// child stand above it.
func (ld *builder) close(n *opened, from int) error {
	base := ld.t.lay.Base()
	k := len(n.children)
	with := &ld.t.with
	h, most := art.Header{Kind: with.TypeFor(base + k + k/8)}, with.LongestPrefix()
	depth := from + (n.end-from)/(most+1)*(most+1)
	h.SetPrefix(depth, ld.last[depth:n.end])
	err := ld.node(&h, func(b []byte) { n.put(b, base, h.Kind) })
	for err == nil && depth > from {
		depth -= most + 1
		h = art.Header{Kind: with.TypeFor(0)}
		h.SetPrefix(depth, ld.last[depth:depth+most])
		below, br, next := ld.word, int(ld.last[depth+most]), base
		err = ld.node(&h, func(b []byte) { art.PutChild(b, h.Kind, base, &next, br, below) })
	}
	ld.open, ld.free = ld.open[:len(ld.open)-1], append(ld.free, n)
	return err
}

// node adds a node to the batch. put gives it its children.
func (ld *builder) node(h *art.Header, put func(b []byte)) error {
	a, at, err := ld.place(h.Kind.Bytes())
	if err != nil {
		return err
	}
	ld.Batch.AddImage(a, h.Kind.Bytes(), func(b []byte) int {
		put(h.Build(ld.t.lay.Sums, b, a, unit.NewVersion(ld.t.Env)))
		return h.Kind.Bytes()
	})
	ld.word = art.InnerSlot(0, h.Kind, at)
	return ld.MayHandOver()
}

// place allocates a node or leaf of which so many bytes are READ.
func (ld *builder) place(bytes int) (pool.Addr, art.Slot, error) {
	a, err := ld.AllocateBlock(art.AllocatedFor(bytes), ld.home)
	if err != nil {
		return pool.Nil, 0, err
	}
	ld.note(a)
	if ld.home == pool.Nil {
		ld.home = a
	}
	at, ok := art.Pack(a)
	if !ok {
		return pool.Nil, 0, art.Beyond(a)
	}
	return a, at, nil
}

// note notes that something of the load lies at a.
func (ld *builder) note(a pool.Addr) {
	if !slices.ContainsFunc(ld.on, func(b pool.Addr) bool { return b.Server() == a.Server() }) {
		ld.on = append(ld.on, a)
	}
}

// leaf makes the leaf of a pair.
func (ld *builder) leaf(key, value []byte) (err error) {
	l := loadedLeaf{long: ld.t.lay.InBlock(len(value))}
	n := len(value)
	if l.long {
		n = referenceBytes
	}
	l.shape = newShape(len(key), n)
	a, at, err := ld.place(art.LeafSlot(0, l.bytes(), 0).LeafBytes())
	if err != nil {
		return err
	}
	if l.long {
		if l.ref, err = ld.PutBlock(&ld.t.lay.Codec, value, a); err != nil {
			return err
		}
		ld.note(l.ref.Addr)
		if _, ok := art.Pack(l.ref.Addr); !ok {
			return art.Beyond(l.ref.Addr)
		}
		value = nil
	}
	ld.Batch.AddLeaf(ld.Batch.Leaves.(*loadLeaves).add(l, key, value), a, unit.NewVersion(ld.t.Env))
	ld.word = art.LeafSlot(0, l.bytes(), at)
	return nil
}

// loadLeaves implements loader.Leaves.
type loadLeaves struct {
	lay    *layout
	leaves []loadedLeaf
	bytes  []byte // keys and values
}

// loadedLeaf is one leaf. Its key and value lie in the batch's bytes.
type loadedLeaf struct {
	shape
	at    int // of the key; the value lies behind it
	value int // its bytes
	long  bool
	ref   blocks.Reference
}

func (b *loadLeaves) add(l loadedLeaf, key, value []byte) int {
	l.at, l.value = len(b.bytes), len(value)
	b.bytes = append(append(b.bytes, key...), value...)
	b.leaves = append(b.leaves, l)
	return len(b.leaves) - 1
}

// Reset implements loader.Leaves.
func (b *loadLeaves) Reset() { b.leaves, b.bytes = b.leaves[:0], b.bytes[:0] }

// Build implements loader.Leaves.
func (b *loadLeaves) Build(i int, dst []byte, a pool.Addr, version uint32) int {
	n := &b.leaves[i]
	key := b.bytes[n.at : n.at+n.key]
	c := content{value: b.bytes[n.at+n.key:][:n.value], long: n.long, ref: n.ref}
	var l leaf
	return len(l.build(b.lay.Sums, n.shape, dst, a, version, key, &c))
}
