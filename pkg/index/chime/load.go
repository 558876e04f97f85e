package chime

import (
	"bytes"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/pool"
)

// leafLoader fills leaves with a stream of pairs. It implements btree.LeafLoader.
type leafLoader struct {
	btree.Cutter
	*shape
	entry   []byte
	content []byte // of a block
	mark    [8]byte

	// of the leaf that is being filled
	from  int // of its items, in the batch
	count int
	tab   table
}

func newLeafLoader(s *shape) *leafLoader { return &leafLoader{shape: s} }

// Start implements btree.LeafLoader.
func (ld *leafLoader) Start(b *btree.Builder) error {
	ld.entry = make([]byte, maxEntry)
	return ld.Begin(b, ld)
}

// batch is that of the load.
func (ld *leafLoader) batch() *batch { return ld.Batch.Leaves.(*batch) }

// Add implements btree.LeafLoader. A leaf ends when it is as full as nodes are made, or no hop
// makes room.
func (ld *leafLoader) Add(key, value []byte) error {
	e, err := ld.entryOf(key, value)
	if err != nil {
		return err
	}
	full := ld.count > 0 && (ld.count+1)*100 > ld.n*btree.Fill
	home := ld.home(ld.codec.KeyOf(e))
	if full || !ld.tab.insert(home, ld.count) {
		if err := ld.Cut(key); err != nil {
			return err
		}
		if !ld.tab.insert(home, 0) {
			return fmt.Errorf("an empty leaf has no room: %w", index.ErrFormat)
		}
	}
	b := ld.batch()
	b.items = append(b.items, piece{len(b.bytes), len(e)})
	b.bytes = append(b.bytes, e...)
	ld.count++
	return nil
}

// entryOf makes the entry of a pair. Where keys lie in blocks, all of it gets one.
func (ld *leafLoader) entryOf(key, value []byte) ([]byte, error) {
	if indirect(ld.lay) {
		ld.fingerprint(&ld.mark, key)
		ld.content = appendPair(ld.content[:0], key, value)
		key, value = ld.mark[:], ld.content
	}
	return ld.EntryOf(ld.codec, ld.entry, key, value)
}

// BeginLeaf implements btree.CutLeaves.
func (ld *leafLoader) BeginLeaf() {
	ld.from, ld.count = len(ld.batch().items), 0
	ld.tab.reset(ld.shape, vacant)
}

// EndLeaf implements btree.CutLeaves.
func (ld *leafLoader) EndLeaf(low, high []byte, sibling pool.Addr) int {
	b := ld.batch()
	n := loadedLeaf{from: ld.from, slot: len(b.slots), sibling: sibling, low: b.keepBytes(low), high: b.keepBytes(high)}
	for i := range b.n {
		if home := ld.tab.home[i]; home >= 0 {
			b.slots = append(b.slots, slotItem{int16(i), home, ld.tab.item[i]})
		}
	}
	n.last = len(b.slots)
	b.leaves = append(b.leaves, n)
	return len(b.leaves) - 1
}

// Empties implements btree.LeafLoader.
func (ld *leafLoader) Empties(a pool.Addr, b []byte) error {
	l := leaf{ld.shape, a, b}
	if h, ok := l.open(); !ok || !h.Rightmost || !bytes.Equal(h.Low, ld.lay.Bottom) {
		return fmt.Errorf("its root has a sibling: %w", index.ErrNotEmpty)
	}
	for i := range l.n {
		if e, _, ok := l.entry(i); !ok || e != nil {
			return fmt.Errorf("it has pairs: %w", index.ErrNotEmpty)
		}
	}
	return nil
}

// piece is a part of a batch's bytes.
type piece struct{ at, n int }

func (p piece) of(b []byte) []byte { return b[p.at : p.at+p.n] }

// batch implements loader.Leaves.
type batch struct {
	*shape
	leaves []loadedLeaf
	bytes  []byte // entries and fences
	items  []piece
	slots  []slotItem
	tab    table
}

// slotItem is where an item goes in its leaf.
type slotItem struct{ slot, home, item int16 }

// loadedLeaf is one leaf.
type loadedLeaf struct {
	from       int // of its items
	slot, last int // of its slots
	low, high  piece
	sibling    pool.Addr
}

// Reset implements loader.Leaves.
func (b *batch) Reset() {
	b.leaves, b.bytes, b.items, b.slots = b.leaves[:0], b.bytes[:0], b.items[:0], b.slots[:0]
}

// keepBytes appends a fence to the bytes.
func (b *batch) keepBytes(key []byte) piece {
	p := piece{len(b.bytes), len(key)}
	b.bytes = append(b.bytes, key...)
	return p
}

// Build implements loader.Leaves.
func (b *batch) Build(i int, dst []byte, a pool.Addr, version uint32) int {
	n := &b.leaves[i]
	h := fence.Header{Version: version, Rightmost: n.sibling == pool.Nil, Sibling: n.sibling, Low: n.low.of(b.bytes), High: n.high.of(b.bytes)}
	b.tab.reset(b.shape, vacant)
	for _, s := range b.slots[n.slot:n.last] {
		b.tab.home[s.slot], b.tab.item[s.slot] = s.home, s.item
	}
	l := leaf{b.shape, a, dst}
	return l.build(&h, &b.tab, func(it int) []byte { return b.items[n.from+it].of(b.bytes) })
}
