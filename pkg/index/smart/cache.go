package smart

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/nodecache"
	"github.com/dmindex/dmindex/pkg/pool"
)

// copied is a copy of an inner node, shared by the sessions of a client. Its head and its keys
// never change. Its words do: a session that READs a word of the node, or changes it, stores it
// here. So a word may be older than the one before it. No word is believed without a proof
// (descend.go).
//
// A word is never older than the copy's stamp says. The floor rests on that: when it has risen
// above the stamp of every copy from before a node was out, no copy leads to the node, and its
// memory is used again. So a session stores here only what it READ after it got the copy, which was
// there by then with its stamp, or what its operation READ before, if that is not older than the
// stamp (mayRenew).
//
// Keys and words lie behind the struct, in one piece of memory with it: a search mostly takes two
// lines of the processor's cache. It has no pointers.
type copied struct {
	nodecache.Head
	art.Header
	ends bool // slot 0 is the end slot
	// how many partial keys lie behind the struct: those of the first slots from base on that had
	// one when the copy was made, and which keep it
	keys uint8
	at   uint8  // where the words of the slots lie, in words behind the struct
	n    uint16 // slots
}

const (
	// copyBytes is what a copy takes besides its keys and slots.
	copyBytes = int(unsafe.Sizeof(copied{}))
	// typicalCopy is what most copies take, at least: those of nodes with a few children.
	typicalCopy = copyBytes + 104
	mostKeys    = art.MostSlots
)

// newCopied makes a copy with room for so many keys and slots.
func newCopied(keys, slots int) *copied {
	at := (keys + 7) / 8
	c := (*copied)(unsafe.Pointer(&make([]atomic.Uint64, copyBytes/8+at+slots)[0]))
	c.at, c.n = uint8(at), uint16(slots)
	return c
}

// behind is what lies so many bytes behind the struct.
func (c *copied) behind(offset int) unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(c), copyBytes+offset)
}

// partial are the keys.
func (c *copied) partial() []byte { return unsafe.Slice((*byte)(c.behind(0)), c.keys) }

// words are the words of the slots.
func (c *copied) words() []atomic.Uint64 {
	return unsafe.Slice((*atomic.Uint64)(c.behind(8*int(c.at))), c.n)
}

// size is how many slots there are.
func (c *copied) size() int { return int(c.n) }

// base is the first slot that is not the end slot.
func (c *copied) base() int {
	if c.ends {
		return 1
	}
	return 0
}

func copyOf(h *nodecache.Head) *copied { return (*copied)(unsafe.Pointer(h)) }

// copies implements nodecache.Owner.
type copies struct{}

// Bytes implements nodecache.Owner.
func (copies) Bytes(h *nodecache.Head) int { return copyOf(h).memory() }

// Evicted implements nodecache.Owner.
func (copies) Evicted(*nodecache.Head) {}

func (c *copied) memory() int { return copyBytes + art.SlotBytes*(int(c.at)+c.size()) }

// word returns the word of a slot.
func (c *copied) word(i int) art.Slot { return art.Slot(c.words()[i].Load()) }

// store keeps a word that was READ or changed by an operation under way.
func (c *copied) store(i int, s art.Slot) { c.words()[i].Store(uint64(s)) }

// renew keeps the slots of b, READ by an operation under way, whatever became of the head.
func (c *copied) renew(b []byte) { c.renewFrom(0, b[art.HeadBytes:art.SlotAt(c.size())]) }

// renewFrom is renew with slots only, of which the first one is number first.
func (c *copied) renewFrom(first int, b []byte) {
	for i := range len(b) / art.SlotBytes {
		if w := art.Slot(binary.LittleEndian.Uint64(b[i*art.SlotBytes:])); c.word(first+i) != w {
			c.store(first+i, w)
		}
	}
}

// decode makes c the node that was READ from a. It reports false if b is no inner node of a type.
func (c *copied) decode(lay *art.Layout, a pool.Addr, t art.NodeType, b []byte) bool {
	if !c.Header.Decode(lay.Sums, b, a) || c.Kind != t {
		return false
	}
	c.Addr, c.ends = a, lay.Ends
	// All are of one level: each copy spares a descent that comes by one READ, wherever it lies, so
	// it is worth as much as it is found. Those nearer to the root are found more often by
	// themselves. Were they of higher levels, a path that is looked up all the time would be READ
	// for ever below copies that nobody asks for.
	c.Level = 1
	c.adopt(b)
	return true
}

// adopt takes the slots from b, a node like c, which has room for them.
func (c *copied) adopt(b []byte) {
	c.n, c.keys = uint16(c.Kind.Slots()), 0
	words, base := c.words(), c.base()
	inOrder := c.Kind != art.Direct
	for i := range words {
		w := art.GetSlot(b, i)
		words[i].Store(uint64(w))
		if i >= base && inOrder {
			if inOrder = !w.Empty(); inOrder {
				c.keys++
				c.partial()[c.keys-1] = w.Key()
			}
		}
	}
}

// clone is a copy of c with no more room than it takes.
func (c *copied) clone() *copied {
	n := newCopied(int(c.keys), c.size())
	n.Addr, n.Level, n.Version, n.Stamp = c.Addr, c.Level, c.Version, c.Stamp
	n.Header, n.ends, n.keys = c.Header, c.ends, c.keys
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
func (c *copied) find(b int) (i int, w art.Slot) {
	switch {
	case b == art.EndBranch:
		return 0, c.word(0)
	case c.Kind == art.Direct:
		i := c.base() + b
		return i, c.word(i)
	}
	if i := bytes.IndexByte(c.partial(), byte(b)); i >= 0 {
		i += c.base()
		return i, c.word(i)
	}
	for i := c.base() + int(c.keys); i < c.size(); i++ {
		if w := c.word(i); w.Empty() || w.Key() == byte(b) {
			return i, w
		}
	}
	return -1, 0
}

// children counts the children in the words.
func (c *copied) children() (n int) {
	for i := range c.size() {
		if c.word(i).Child() {
			n++
		}
	}
	return n
}

// allFrozen reports whether all words are.
func (c *copied) allFrozen() bool {
	for i := range c.size() {
		if !c.word(i).Frozen() {
			return false
		}
	}
	return true
}
