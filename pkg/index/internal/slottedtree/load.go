package slottedtree

import (
	"bytes"

	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// leafLoader cuts a stream of pairs into leaves. It implements btree.LeafLoader.
type leafLoader struct {
	lay   *fence.Layout
	b     *btree.Builder
	entry []byte

	// being filled; Nil = the first one: its place depends on whether there is another
	leaf   pool.Addr
	low    []byte // its low fence
	start  int    // of its entries, in the bytes of the batch
	from   int    // of its items
	filled slotted.Load
}

// Start implements btree.LeafLoader.
func (ld *leafLoader) Start(b *btree.Builder) error {
	ld.b, ld.entry, ld.low = b, make([]byte, slotted.MaxEntryBytes), bytes.Clone(ld.lay.Bottom)
	return ld.beginLeaf()
}

// batch is that of the load.
func (ld *leafLoader) batch() *batch { return ld.b.Batch.Leaves.(*batch) }

// Add implements btree.LeafLoader.
func (ld *leafLoader) Add(key, value []byte) error {
	e, err := ld.entryOf(key, value)
	if err != nil {
		return err
	}
	grown := ld.filled
	grown.Add(len(e))
	// The high fence is not known yet, but how long it can be.
	room := ld.lay.NodeBytes - fence.RoundUp(fence.HeaderBytes+len(ld.low)+ld.lay.MaxKey)
	if ld.filled.Count > 0 && grown.Used() > room*btree.Fill/100 {
		if err := ld.closeLeaf(ld.lay.Separator(ld.b.Last(), key)); err != nil {
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

// entryOf makes the entry of a pair. A long value gets a block.
func (ld *leafLoader) entryOf(key, value []byte) ([]byte, error) {
	if len(value) <= ld.lay.Inline {
		return ld.lay.PutEntry(ld.entry, key, value), nil
	}
	r, err := ld.b.PutBlock(&ld.lay.Codec, value, ld.leaf)
	if err != nil {
		return nil, err
	}
	return r.PutEntry(&ld.lay.Codec, ld.entry, key), nil
}

// closeLeaf ends the leaf that is being filled at a fence, and begins the next one.
func (ld *leafLoader) closeLeaf(high []byte) (err error) {
	if ld.leaf == pool.Nil {
		if ld.leaf, err = ld.b.AllocateLeaf(); err != nil {
			return err
		}
	}
	next, err := ld.b.AllocateLeaf()
	if err != nil {
		return err
	}
	if err := ld.endLeaf(high, next); err != nil {
		return err
	}
	ld.leaf, ld.low = next, append(ld.low[:0], high...)
	return ld.beginLeaf()
}

// beginLeaf hands the batch over if it is full.
func (ld *leafLoader) beginLeaf() error {
	if err := ld.b.MayHandOver(); err != nil {
		return err
	}
	b := ld.batch()
	ld.from, ld.start = len(b.items), len(b.bytes)
	// no entry lies at offset 0 of an image (slotted.Pairs)
	b.bytes = append(b.bytes, make([]byte, fence.Grain)...)
	return nil
}

// endLeaf adds the leaf, which has its place, to the batch.
func (ld *leafLoader) endLeaf(high []byte, sibling pool.Addr) error {
	ld.b.Batch.AddLeaf(ld.batch().leaf(ld, high, sibling), ld.leaf, unit.NewVersion(ld.b.Env()))
	return ld.b.Raise(ld.low, ld.leaf)
}

// Finish implements btree.LeafLoader.
func (ld *leafLoader) Finish() (alone bool, err error) {
	if ld.leaf == pool.Nil {
		ld.batch().leaf(ld, ld.lay.NoHigh(), pool.Nil)
		return true, nil
	}
	return false, ld.endLeaf(ld.lay.NoHigh(), pool.Nil)
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

// leaf adds the leaf that ld has filled, and returns its number.
func (b *batch) leaf(ld *leafLoader, high []byte, sibling pool.Addr) int {
	n := loadedLeaf{start: ld.start, end: len(b.bytes), from: ld.from, to: len(b.items), sibling: sibling, rightmost: sibling == pool.Nil}
	b.bytes = append(b.bytes, ld.low...)
	n.low = len(b.bytes)
	b.bytes = append(b.bytes, high...)
	n.high = len(b.bytes)
	b.leaves = append(b.leaves, n)
	return len(b.leaves) - 1
}

// Build implements loader.Leaves.
func (b *batch) Build(i int, dst []byte, a pool.Addr, version uint32) int {
	n := &b.leaves[i]
	h := fence.Header{Version: version, Rightmost: n.rightmost, Sibling: n.sibling, Low: b.bytes[n.end:n.low], High: b.bytes[n.low:n.high]}
	b.pairs.Image, b.pairs.List = b.bytes[n.start:n.end], b.items[n.from:n.to]
	return slotted.Build(dst, b.lay, a, &h, &b.pairs, 0, n.to-n.from)
}
