package art

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/dmindex/dmindex/pkg/index/internal/nodecache"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Copy is a copy of an inner node, shared by the sessions of a client. Its head and its keys
// never change. Its words do: a session that READs a word of the node, or changes it, stores it
// here. So a word may be older than the one before it. No word is believed without a proof
// (docs/design/smart.md, "Reading").
//
// A word is never older than the copy's stamp says. The floor rests on that: when it has risen
// above the stamp of every copy from before a node was out, no copy leads to the node, and its
// memory is used again. So a session stores here only what it READ after it got the copy, which was
// there by then with its stamp, or what its operation READ before, if that is not older than the
// stamp.
//
// Keys and words lie behind the struct, in one piece of memory with it: a search mostly takes two
// lines of the processor's cache. It has no pointers.
type Copy struct {
	nodecache.Head
	Header
	Ends bool // slot 0 is the end slot
	// how many partial keys lie behind the struct: those of the first slots from base on that had
	// one when the copy was made, and which keep it
	keys uint8
	at   uint8  // where the words of the slots lie, in words behind the struct
	n    uint16 // slots
}

const (
	// copyBytes is what a copy takes besides its keys and slots.
	copyBytes = int(unsafe.Sizeof(Copy{}))
	// typicalCopy is what most copies take, at least: those of nodes with a few children.
	typicalCopy = copyBytes + 104
	// mostKeys is how many keys a copy has at most.
	mostKeys = mostSlots
)

// newCopy makes a copy with room for so many keys and slots.
func newCopy(keys, slots int) *Copy {
	at := (keys + 7) / 8
	c := (*Copy)(unsafe.Pointer(&make([]atomic.Uint64, copyBytes/8+at+slots)[0]))
	c.at, c.n = uint8(at), uint16(slots)
	return c
}

// behind is what lies so many bytes behind the struct.
func (c *Copy) behind(offset int) unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(c), copyBytes+offset)
}

// partial are the keys.
func (c *Copy) partial() []byte { return unsafe.Slice((*byte)(c.behind(0)), c.keys) }

// words are the words of the slots.
func (c *Copy) words() []atomic.Uint64 {
	return unsafe.Slice((*atomic.Uint64)(c.behind(8*int(c.at))), c.n)
}

// Size is how many slots there are.
func (c *Copy) Size() int { return int(c.n) }

// Base is the first slot that is not the end slot.
func (c *Copy) Base() int {
	if c.Ends {
		return 1
	}
	return 0
}

// copyOf is the copy with head h.
func copyOf(h *nodecache.Head) *Copy { return (*Copy)(unsafe.Pointer(h)) }

// copies implements nodecache.Owner.
type copies struct{}

// Bytes implements nodecache.Owner.
func (copies) Bytes(h *nodecache.Head) int { return copyOf(h).memory() }

// Evicted implements nodecache.Owner.
func (copies) Evicted(*nodecache.Head) {}

// memory is what c takes.
func (c *Copy) memory() int { return copyBytes + SlotBytes*(int(c.at)+c.Size()) }

// Word returns the word of a slot.
func (c *Copy) Word(i int) Slot { return Slot(c.words()[i].Load()) }

// Store keeps a word that was READ or changed by an operation under way.
func (c *Copy) Store(i int, s Slot) { c.words()[i].Store(uint64(s)) }

// Renew keeps the slots of b, READ by an operation under way, whatever became of the head.
func (c *Copy) Renew(b []byte) { c.RenewFrom(0, b[HeadBytes:SlotAt(c.Size())]) }

// RenewFrom is Renew with slots only, of which the first one is number first.
func (c *Copy) RenewFrom(first int, b []byte) {
	for i := range len(b) / SlotBytes {
		if w := Slot(binary.LittleEndian.Uint64(b[i*SlotBytes:])); c.Word(first+i) != w {
			c.Store(first+i, w)
		}
	}
}

// Decode makes c the node that was READ from a. It reports false if b is no inner node of a type.
func (c *Copy) Decode(lay *Layout, a pool.Addr, t NodeType, b []byte) bool {
	if !c.Header.Decode(lay.Sums, b, a) || c.Kind != t {
		return false
	}
	c.Addr, c.Ends = a, lay.Ends
	// All are of one level: each copy spares a descent that comes by one READ, wherever it lies, so
	// it is worth as much as it is found. Those nearer to the root are found more often by
	// themselves. Were they of higher levels, a path that is looked up all the time would be READ
	// for ever below copies that nobody asks for.
	c.Level = 1
	c.adopt(b)
	return true
}

// adopt takes the slots from b, a node like c, which has room for them.
func (c *Copy) adopt(b []byte) {
	c.n, c.keys = uint16(c.Kind.Slots()), 0
	words, base := c.words(), c.Base()
	inOrder := c.Kind != Direct
	for i := range words {
		w := GetSlot(b, i)
		words[i].Store(uint64(w))
		if i >= base && inOrder {
			if inOrder = !w.Empty(); inOrder {
				c.keys++
				c.partial()[c.keys-1] = w.Key()
			}
		}
	}
}

// Clone is a copy of c with no more room than it takes.
func (c *Copy) Clone() *Copy {
	n := newCopy(int(c.keys), c.Size())
	n.Addr, n.Level, n.Version, n.Stamp = c.Addr, c.Level, c.Version, c.Stamp
	n.Header, n.Ends, n.keys = c.Header, c.Ends, c.keys
	copy(n.partial(), c.partial())
	from, to := c.words(), n.words()
	for i := range from {
		to[i].Store(from[i].Load())
	}
	return n
}

// find returns the slot of a branch, and its word. If there is none it returns the first empty
// slot, which is the one that may get it; -1 if there is no empty one. A node of type direct, and
// the end slot, have one place for a branch.
func (c *Copy) find(b int) (i int, w Slot) {
	switch {
	case b == EndBranch:
		return 0, c.Word(0)
	case c.Kind == Direct:
		i := c.Base() + b
		return i, c.Word(i)
	}
	if i := bytes.IndexByte(c.partial(), byte(b)); i >= 0 {
		i += c.Base()
		return i, c.Word(i)
	}
	for i := c.Base() + int(c.keys); i < c.Size(); i++ {
		if w := c.Word(i); w.Empty() || w.Key() == byte(b) {
			return i, w
		}
	}
	return -1, 0
}

// Children counts the children in the words.
func (c *Copy) Children() (n int) {
	for i := range c.Size() {
		if c.Word(i).Child() {
			n++
		}
	}
	return n
}

// allFrozen reports whether all words are.
func (c *Copy) allFrozen() bool {
	for i := range c.Size() {
		if !c.Word(i).Frozen() {
			return false
		}
	}
	return true
}

// wayTo appends to b what all keys below the child w have from the byte from on, as far as the
// node's prefix, which begins there at the latest, and the child's slot say it. The end slot says
// 0, which is no byte of theirs.
func (c *Copy) wayTo(w Slot, from int, b []byte) []byte {
	return append(append(b, c.Prefix[from-int(c.Depth):c.Length]...), w.Key())
}

// single is the only child of c; 0 if it has none, or several.
func (c *Copy) single() (only Slot) {
	for i := range c.Size() {
		if w := c.Word(i); w.Child() {
			if only != 0 {
				return 0
			}
			only = w
		}
	}
	return only
}
