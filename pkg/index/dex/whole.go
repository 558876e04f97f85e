package dex

import (
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Where a WRITE as long as a leaf takes effect whole or not at all, whoever dies
// (verbs.Capabilities.WholeAlways: the path MTU over ibv), a flush is one such WRITE, from the
// first changed word to the last. Over tcp it is not: the memory server's process may die within a
// copy, and its memory stays. A crash leaves the leaf as it was before all the changes or as it is
// behind them, so they need not leave alone what the memory server's slots point to: an entry's
// words, and its slot, are free as soon as the frame's image does not use them. So a change of a
// key that is there finds room without a flush, and one more key finds what removed or moved ones
// left. What an image lacks room for, a flush does not help either.
//
// Who may see what of that WRITE: other clients do not use the leaf (index.Partitioned). A READ of
// this client, or a call's search in the memory server, may be under way with the WRITE and find a
// mixture of words (G2). A slot's checksum covers its entry and its place, so a slot and an entry
// of different moments do not verify, and who needs them READs again, as a torn leaf of Sherman's
// is. But a key that went from one slot to another can be in neither, or in both with two of its
// values, each of which verifies. So what such a READ does not find counts only if the leaf had no
// frame since before it (missesNeedProof): lookups and scans READ again else, and the answer of a
// call is not used. The next moment at which the memory server has such a mixture is the next
// flush; a crash leaves none.
//
// The switch is a note of the frame (mark), set when the frame is filled, because the flush has to
// do what the changes relied on. A connection never changes what it is capable of.

// whole reports whether the frame is written back by one WRITE that takes effect as a whole. Under
// the lock.
func (f *frame) whole() bool { return *f.noted()&wholeNote != 0 }

// wholeLeaf reports whether a WRITE of the leaf at a takes effect as a whole, and is used. Without
// caching each flush has one change, whose entry and slot word are shorter than what lies between
// them.
func (x *dex) wholeLeaf(a pool.Addr) bool {
	return x.with.caching && x.pool.WholeAlways(a) >= x.lay.NodeBytes
}

// missesNeedProof reports whether what a READ of the leaf at a does not find may be there, unless
// the leaf had no frame since before the READ.
func (x *dex) missesNeedProof(a pool.Addr) bool { return x.wholeLeaf(a) }

// free makes the words of the entry of slot i free. Under the lock of a frame that is whole.
func (f *frame) free(v *view, i int) {
	_, off, n := slotted.Slot(f.word(v.dir + i))
	busy := f.busy(v)
	for at := off / 8; at < off/8+(n+7)/8; at++ {
		busy[at/64] &^= 1 << (at % 64)
	}
}

// extent returns the words between which the image differs from the memory server's. Under the lock
// of a frame that is whole.
func (f *frame) extent(v *view) (low, high int) {
	low, high = f.written()
	sets, first, last := f.sets(), -1, -1
	for i := range v.count {
		if sets[i/64]>>(i%64)&1 != 0 {
			if last = i; first < 0 {
				first = i
			}
		}
	}
	switch {
	case first < 0:
	case high == 0:
		low, high = v.dir+first, v.dir+last+1
	default: // the directory lies before the entries
		low = v.dir + first
	}
	return low, high
}
