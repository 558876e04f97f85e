package smart

import (
	"encoding/binary"
	"math/bits"

	"github.com/dmindex/dmindex/pkg/index/internal/art"
)

// frame is an inner node with its children in the order of their keys, and a place in that order.
// A place is a branch; the end slot comes before all bytes.
type frame struct {
	art.Header
	at    art.Slot // its address, packed
	base  int
	words []art.Slot
	has   [4]uint64  // the bytes that have children
	where [256]uint8 // their slots, unless it is of type direct
	dead  bool       // what was READ is not the node: it was replaced

	// The branches from lo to hi were READ by this scan; what is said of others a copy says, which
	// only plans go by.
	lo, hi int

	next  int  // where the walk goes on
	tight bool // the cursor has the node's prefix
}

// Places before the first branch and behind the last one, of a walk downwards and upwards.
const (
	beforeAll = art.EndBranch - 1
	behindAll = 256
	highest   = behindAll - 1
)

// take makes f the node of the type that was READ from where w leads.
func (f *frame) take(lay *art.Layout, w art.Slot, b []byte) {
	f.at, f.base = w&art.AddrMask, lay.Base()
	t := art.NodeType(w.Code())
	if f.dead = !f.Header.Decode(lay.Sums, b, w.Addr()) || f.Kind != t; f.dead {
		return
	}
	f.resize(t.Slots())
	for i := range f.words {
		f.words[i] = art.GetSlot(b, i)
	}
	f.rank()
	f.lo, f.hi = f.lowest(), highest
}

// copy makes f what a copy says of the node where w leads.
func (f *frame) copy(w art.Slot, c *art.Copy) {
	f.at, f.Header, f.base, f.dead = w&art.AddrMask, c.Header, c.Base(), false
	f.resize(c.Size())
	for i := range f.words {
		f.words[i] = c.Word(i)
	}
	f.rank()
	f.lo, f.hi = behindAll, beforeAll
}

// learn notes the slots from first on that were READ. Those of a node that is searched are all of
// its slots.
func (f *frame) learn(first int, b []byte) {
	n := len(b) / art.SlotBytes
	for i := range n {
		f.words[first+i] = art.Slot(binary.LittleEndian.Uint64(b[i*art.SlotBytes:]))
	}
	f.rank()
	lo, hi := f.lowest(), highest
	if f.Kind == art.Direct {
		lo, hi = first-f.base, first-f.base+n-1
	}
	switch { // what is READ of a node by several READs lies side by side
	case f.lo > f.hi:
		f.lo, f.hi = lo, hi
	case lo == f.hi+1:
		f.hi = hi
	case hi == f.lo-1:
		f.lo = lo
	default:
		f.lo, f.hi = lo, hi
	}
}

// lowest is the first branch that there is.
func (f *frame) lowest() int { return -f.base }

// knownTo is the last branch, in the direction of the walk, up to which all from a place on were
// READ; the one before the place if that was not READ.
func (f *frame) knownTo(place int, reverse bool) int {
	place = min(max(place, f.lowest()), highest)
	switch {
	case reverse && f.lo <= place && place <= f.hi:
		return f.lo
	case reverse:
		return place + 1
	case f.lo <= place && place <= f.hi:
		return f.hi
	}
	return place - 1
}

// within reports whether a walk up to branch b, or to the end, ends at the branch to or before.
func (f *frame) within(b, to int, reverse bool) bool {
	if reverse {
		return max(b, f.lowest()) >= to
	}
	return min(b, highest) <= to
}

// passed reports whether a walk that came to a place has passed all branches.
func (f *frame) passed(place int, reverse bool) bool {
	if reverse {
		return place < f.lowest()
	}
	return place > highest
}

// knows reports whether all that there is from a place to branch b was READ, b included.
func (f *frame) knows(place, b int, reverse bool) bool {
	return f.passed(place, reverse) || f.within(b, f.knownTo(place, reverse), reverse)
}

// reach is the last branch from b on below which pairs are wanted, if so many are and the node has
// the children that f says. How many pairs lie below a node is a guess.
func (f *frame) reach(b, wanted int, reverse bool) int {
	for {
		b = f.from(b, reverse)
		switch {
		case b == behindAll:
			return highest
		case b == beforeAll:
			return f.lowest()
		}
		if w := f.word(b); w.Inner() {
			wanted -= max(2, art.NodeType(w.Code()).Slots()/3)
		} else {
			wanted--
		}
		if wanted <= 0 {
			return b
		}
		if b++; reverse {
			b -= 2
		}
	}
}

func (f *frame) resize(n int) {
	if cap(f.words) < n {
		f.words = make([]art.Slot, n)
	}
	f.words = f.words[:n]
}

// rank puts the children in order.
func (f *frame) rank() {
	f.has = [4]uint64{}
	for i := f.base; i < len(f.words); i++ {
		if w := f.words[i]; w.Child() {
			k := w.Key()
			f.has[k>>6] |= 1 << (k & 63)
			if f.Kind != art.Direct {
				f.where[k] = uint8(i)
			}
		}
	}
}

// word is that of a branch with a child.
func (f *frame) word(b int) art.Slot {
	switch {
	case b == art.EndBranch:
		return f.words[0]
	case f.Kind == art.Direct:
		return f.words[f.base+b]
	}
	return f.words[f.where[b]]
}

// ends reports whether a key ends at the node.
func (f *frame) ends() bool { return f.base == 1 && f.words[0].Child() }

// from returns the first branch with a child from place b on, upwards or downwards; behindAll or
// beforeAll if there is none.
func (f *frame) from(b int, reverse bool) int {
	if reverse {
		return f.below(b)
	}
	if b <= art.EndBranch && f.ends() {
		return art.EndBranch
	}
	for b = max(b, 0); b < 256; b = b&^63 + 64 {
		if m := f.has[b>>6] >> (b & 63); m != 0 {
			return b + bits.TrailingZeros64(m)
		}
	}
	return behindAll
}

func (f *frame) below(b int) int {
	for b = min(b, 255); b >= 0; b = b&^63 - 1 {
		if m := f.has[b>>6] << (63 - b&63); m != 0 {
			return b - bits.LeadingZeros64(m)
		}
	}
	if b >= art.EndBranch && f.ends() {
		return art.EndBranch
	}
	return beforeAll
}
