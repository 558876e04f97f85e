package art

import (
	"encoding/binary"
	"math/bits"
)

// Frame is an inner node with its children in the order of their keys, and a place in that order.
// A place is a branch; the end slot comes before all bytes.
type Frame struct {
	Header
	At    Slot // its address, packed
	Base  int  // the first slot that is not the end slot
	Words []Slot
	Dead  bool       // what was READ is not the node: it was replaced
	has   [4]uint64  // the bytes that have children
	where [256]uint8 // their slots, unless it is of type direct

	// The branches from lo to hi were READ by this scan; what is said of others a copy says, which
	// only plans go by.
	lo, hi int

	Next  int  // where the walk goes on
	Tight bool // the cursor has the node's prefix
}

// Places before the first branch and behind the last one, of a walk downwards and upwards.
const (
	BeforeAll = EndBranch - 1
	BehindAll = 256
	Highest   = BehindAll - 1
)

// Take makes f the node of the type that was READ from where w leads.
func (f *Frame) Take(lay *Layout, w Slot, b []byte) {
	f.At, f.Base = w&AddrMask, lay.Base()
	t := NodeType(w.Code())
	if f.Dead = !f.Header.Decode(lay.Sums, b, w.Addr()) || f.Kind != t; f.Dead {
		return
	}
	f.resize(t.Slots())
	for i := range f.Words {
		f.Words[i] = GetSlot(b, i)
	}
	f.rank()
	f.lo, f.hi = f.Lowest(), Highest
}

// CopyFrom makes f what a copy says of the node where w leads.
func (f *Frame) CopyFrom(w Slot, c *Copy) {
	f.At, f.Header, f.Base, f.Dead = w&AddrMask, c.Header(), c.Base(), false
	f.resize(c.Size())
	for i := range f.Words {
		f.Words[i] = c.Word(i)
	}
	f.rank()
	f.lo, f.hi = BehindAll, BeforeAll
}

// Learn notes the slots from first on that were READ. Those of a node that is searched are all of
// its slots.
func (f *Frame) Learn(first int, b []byte) {
	n := len(b) / SlotBytes
	for i := range n {
		f.Words[first+i] = Slot(binary.LittleEndian.Uint64(b[i*SlotBytes:]))
	}
	f.rank()
	lo, hi := f.Lowest(), Highest
	if f.Kind == Direct {
		lo, hi = first-f.Base, first-f.Base+n-1
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

// Lowest is the first branch that there is.
func (f *Frame) Lowest() int { return -f.Base }

// KnownTo is the last branch, in the direction of the walk, up to which all from a place on were
// READ; the one before the place if that was not READ.
func (f *Frame) KnownTo(place int, reverse bool) int {
	place = min(max(place, f.Lowest()), Highest)
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

// Within reports whether a walk up to branch b, or to the end, ends at the branch to or before.
func (f *Frame) Within(b, to int, reverse bool) bool {
	if reverse {
		return max(b, f.Lowest()) >= to
	}
	return min(b, Highest) <= to
}

// Passed reports whether a walk that came to a place has passed all branches.
func (f *Frame) Passed(place int, reverse bool) bool {
	if reverse {
		return place < f.Lowest()
	}
	return place > Highest
}

// Knows reports whether all that there is from a place to branch b was READ, b included.
func (f *Frame) Knows(place, b int, reverse bool) bool {
	return f.Passed(place, reverse) || f.Within(b, f.KnownTo(place, reverse), reverse)
}

// Reach is the last branch from b on below which pairs are wanted, if so many are and the node has
// the children that f says. How many pairs lie below a node is a guess.
func (f *Frame) Reach(b, wanted int, reverse bool) int {
	for {
		b = f.From(b, reverse)
		switch {
		case b == BehindAll:
			return Highest
		case b == BeforeAll:
			return f.Lowest()
		}
		if w := f.Word(b); w.Inner() {
			wanted -= max(2, NodeType(w.Code()).Slots()/3)
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

// resize gives f room for n slots.
func (f *Frame) resize(n int) {
	if cap(f.Words) < n {
		f.Words = make([]Slot, n)
	}
	f.Words = f.Words[:n]
}

// rank puts the children in order.
func (f *Frame) rank() {
	f.has = [4]uint64{}
	for i := f.Base; i < len(f.Words); i++ {
		if w := f.Words[i]; w.Child() {
			k := w.Key()
			f.has[k>>6] |= 1 << (k & 63)
			if f.Kind != Direct {
				f.where[k] = uint8(i)
			}
		}
	}
}

// Word is that of a branch with a child.
func (f *Frame) Word(b int) Slot {
	switch {
	case b == EndBranch:
		return f.Words[0]
	case f.Kind == Direct:
		return f.Words[f.Base+b]
	}
	return f.Words[f.where[b]]
}

// ends reports whether a key ends at the node.
func (f *Frame) ends() bool { return f.Base == 1 && f.Words[0].Child() }

// From returns the first branch with a child from place b on, upwards or downwards; BehindAll or
// BeforeAll if there is none.
func (f *Frame) From(b int, reverse bool) int {
	if reverse {
		return f.below(b)
	}
	if b <= EndBranch && f.ends() {
		return EndBranch
	}
	for b = max(b, 0); b < 256; b = b&^63 + 64 {
		if m := f.has[b>>6] >> (b & 63); m != 0 {
			return b + bits.TrailingZeros64(m)
		}
	}
	return BehindAll
}

// below is From downwards.
func (f *Frame) below(b int) int {
	for b = min(b, 255); b >= 0; b = b&^63 - 1 {
		if m := f.has[b>>6] << (63 - b&63); m != 0 {
			return b - bits.LeadingZeros64(m)
		}
	}
	if b >= EndBranch && f.ends() {
		return EndBranch
	}
	return BeforeAll
}
