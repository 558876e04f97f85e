package slottedtree

import (
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// leaves implements btree.Leaves.
type leaves struct {
	lay *fence.Layout

	// of a merge
	both  []byte // the bytes of both leaves
	pairs slotted.Pairs
	right slotted.Pairs
}

// Open implements btree.Leaves.
func (f *leaves) Open(a pool.Addr, b []byte) (fence.Header, bool) {
	var l slotted.Leaf
	ok := l.Open(f.lay, a, b)
	return l.Header, ok
}

// HeadBytes implements btree.HeadedLeaves.
func (f *leaves) HeadBytes() int { return f.lay.HeadBytes() }

// Verify implements btree.Leaves.
func (f *leaves) Verify(a pool.Addr, b []byte) bool {
	var l slotted.Leaf
	return l.Open(f.lay, a, b) && l.Verify()
}

// Load implements btree.Leaves.
func (f *leaves) Load(a pool.Addr, b []byte) btree.Load {
	var l slotted.Leaf
	if !l.Open(f.lay, a, b) {
		return btree.Load{}
	}
	return loadOf(l.Load())
}

// loadOf is d as the tree has it.
func loadOf(d slotted.Load) btree.Load { return btree.Load{Pairs: d.Count, Bytes: d.Used()} }

// Load is that of a leaf with so many entries, of so many bytes.
func Load(count, bytes int) btree.Load { return loadOf(slotted.Load{Count: count, Bytes: bytes}) }

// BuildEmpty implements btree.Leaves.
func (f *leaves) BuildEmpty(b []byte, a pool.Addr, h *fence.Header) int {
	return slotted.Build(b, f.lay, a, h, &slotted.Pairs{Lay: f.lay}, 0, 0)
}

// Merge implements btree.Leaves.
func (f *leaves) Merge(b []byte, a [2]pool.Addr, nodes *[2][]byte) int {
	var l, r slotted.Leaf
	n := f.lay.NodeBytes
	// The pairs of both refer to one image, in which the right leaf follows the left one.
	f.both = append(append(f.both[:0], nodes[0]...), nodes[1]...)
	if !l.Open(f.lay, a[0], f.both[:n]) || !r.Open(f.lay, a[1], f.both[n:]) || l.Rightmost || l.Sibling != a[1] {
		return 0
	}
	p := &f.pairs
	if !l.Collect(p) || !r.Collect(&f.right) {
		return 0
	}
	p.Image = f.both
	for _, it := range f.right.List {
		it.Off += uint32(n)
		p.List = append(p.List, it)
	}
	h := l.Header
	h.Version++
	h.High, h.Rightmost, h.Sibling = r.High, r.Rightmost, r.Sibling
	d, room := slotted.LoadOf(p.List), f.lay.Room(h.Low, h.High)
	if d.Used()+d.Spare() > btree.MayFill(room, l.Load().Count == 0 || r.Load().Count == 0) {
		return 0
	}
	p.Resort(&h)
	return slotted.Build(b, f.lay, a[0], &h, p, 0, len(p.List))
}

// halves is a locked leaf that is divided: the entries from at on go to the right. It implements
// btree.Halves.
type halves struct {
	s  *Session
	l  slotted.Leaf // a copy: the one that is locked stays on the stack
	p  *slotted.Pairs
	at int
}

// Left implements btree.Halves.
func (d *halves) Left(b, separator []byte, to pool.Addr) int {
	h := d.l.Header
	h.Version++
	h.High, h.Rightmost, h.Sibling = separator, false, to
	return slotted.Build(b, d.l.Lay, d.l.Addr, &h, d.p, 0, d.at)
}

// Right implements btree.Halves.
func (d *halves) Right(b, separator []byte, to pool.Addr) int {
	h := d.l.Header
	h.Version, h.Low = unit.NewVersion(d.s.Env), separator
	return slotted.Build(b, d.l.Lay, to, &h, d.p, d.at, len(d.p.List))
}
