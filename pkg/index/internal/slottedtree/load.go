package slottedtree

import (
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// leafLoader fills leaves with a stream of pairs. It implements btree.LeafLoader.
type leafLoader struct {
	btree.Cutter
	lay   *fence.Layout
	entry []byte

	// of the leaf that is being filled
	start  int // of its entries, in the bytes of the batch
	from   int // of its items
	filled slotted.Load
}

// Start implements btree.LeafLoader.
func (ld *leafLoader) Start(b *btree.Builder) error {
	ld.entry = make([]byte, slotted.MaxEntryBytes)
	return ld.Begin(b, ld)
}

// batch is that of the load.
func (ld *leafLoader) batch() *batch { return ld.Batch.Leaves.(*batch) }

// Add implements btree.LeafLoader.
func (ld *leafLoader) Add(key, value []byte) error {
	e, err := ld.EntryOf(&ld.lay.Codec, ld.entry, key, value)
	if err != nil {
		return err
	}
	grown := ld.filled
	grown.Add(len(e))
	// The high fence is not known yet, but how long it can be.
	room := ld.lay.NodeBytes - fence.RoundUp(fence.HeaderBytes+len(ld.Low())+ld.lay.MaxKey)
	if ld.filled.Count > 0 && grown.Used() > room*btree.Fill/100 {
		if err := ld.Cut(key); err != nil {
			return err
		}
		grown = slotted.Load{}
		grown.Add(len(e))
	}
	ld.filled = grown
	b := ld.batch()
	b.items = append(b.items, slotted.EntryAt{Off: uint32(len(b.bytes) - ld.start), N: uint16(len(e))})
	b.bytes = append(b.bytes, e...)
	return nil
}

// BeginLeaf implements btree.CutLeaves.
func (ld *leafLoader) BeginLeaf() {
	b := ld.batch()
	ld.from, ld.start = len(b.items), len(b.bytes)
	// no entry lies at offset 0 of an image (slotted.Pairs)
	b.bytes = append(b.bytes, make([]byte, fence.Grain)...)
}

// EndLeaf implements btree.CutLeaves.
func (ld *leafLoader) EndLeaf(low, high []byte, sibling pool.Addr) int {
	b := ld.batch()
	n := loadedLeaf{start: ld.start, end: len(b.bytes), from: ld.from, to: len(b.items), sibling: sibling, rightmost: sibling == pool.Nil}
	b.bytes = append(b.bytes, low...)
	n.low = len(b.bytes)
	b.bytes = append(b.bytes, high...)
	n.high = len(b.bytes)
	b.leaves = append(b.leaves, n)
	return len(b.leaves) - 1
}

// Empties implements btree.LeafLoader.
func (ld *leafLoader) Empties(a pool.Addr, b []byte) error {
	var l slotted.Leaf
	l.Open(ld.lay, a, b)
	return l.Empties()
}

// batch implements loader.Leaves.
type batch struct {
	lay    *fence.Layout
	leaves []loadedLeaf
	bytes  []byte            // entries and fences
	items  []slotted.EntryAt // of the entries, by their offset from their leaf's start
	pairs  slotted.Pairs     // of one leaf at a time
}

// loadedLeaf is one leaf. Numbers are places in the batch's bytes.
type loadedLeaf struct {
	start, end int // of its entries
	from, to   int // of its items
	low, high  int // the fences lie from end to low and from low to high
	rightmost  bool
	sibling    pool.Addr
}

func newBatch(lay *fence.Layout) *batch { return &batch{lay: lay, pairs: slotted.Pairs{Lay: lay}} }

// Reset implements loader.Leaves.
func (b *batch) Reset() { b.leaves, b.bytes, b.items = b.leaves[:0], b.bytes[:0], b.items[:0] }

// Build implements loader.Leaves.
func (b *batch) Build(i int, dst []byte, a pool.Addr, version uint32) int {
	n := &b.leaves[i]
	h := fence.Header{Version: version, Rightmost: n.rightmost, Sibling: n.sibling, Low: b.bytes[n.end:n.low], High: b.bytes[n.low:n.high]}
	b.pairs.Image, b.pairs.List = b.bytes[n.start:n.end], b.items[n.from:n.to]
	return slotted.Build(dst, b.lay, a, &h, &b.pairs, 0, n.to-n.from)
}
