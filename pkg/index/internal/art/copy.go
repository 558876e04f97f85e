package art

import (
	"bytes"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/dmindex/dmindex/pkg/index/internal/nodecache"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Copy is a copy of an inner node, shared by the sessions of a client. Its head and its keys never
// change. Its words do: a session that READs a word of the node, or changes it, stores it here. So
// a word may be older than the one before it. No word is believed without a proof
// (docs/design/smart.md, "Reading").
//
// A word is never older than the copy's stamp says. The floor rests on that: when it has risen
// above the stamp of every copy from before a node was out, no copy leads to the node, and its
// memory is used again. So a session stores here only what it READ after it got the copy, which was
// there by then with its stamp, or what its operation READ before, if that is not older than the
// stamp.
//
// A copy takes no more than the node has children. Behind the struct, in one piece of memory with
// it, lie the partial keys of the first slots, the prefix, and the words of the first slots, as
// many as the memory that was allocated has room for: a search mostly takes two lines of the
// processor's cache. Slots are filled in order, so those that have no room are empty as far as the
// copy says. Where a child comes to one of them a larger copy takes this one's place
// (Session.learn). A node of type direct is filled in no order, and has room for all its slots. A
// copy has no pointers.
type Copy struct {
	nodecache.Head
	Outline
	Ends bool // slot 0 is the end slot
	// how many partial keys there are: those of the first slots from base on that had one when the
	// copy was made, and which keep it
	keys uint8
	room uint16 // for words; there may be more than slots
}

// copyBytes is what a copy takes besides its keys, prefix and words.
const copyBytes = int(unsafe.Sizeof(Copy{}))

// typicalCopy is what copies are taken to be, to say how many places a cache has for them. It is
// more than they take on average: most are small, but a cache without room for all of them keeps
// the large ones near the root, for which each place that stays empty is lost.
const typicalCopy = copyBytes + 16*SlotBytes

// mostKeys is how many keys a copy has at most. Nodes of type direct have none.
const mostKeys = 125

// NewCopy makes a copy that any node can be decoded to, time and again.
func NewCopy() *Copy {
	return newCopy(keyBytes(mostKeys, MostPrefix) + SlotBytes*mostSlots)
}

// newCopy makes a copy with so many bytes behind the struct, or more: those that the allocator
// would leave unused are room for words.
func newCopy(behind int) *Copy {
	b := slices.Grow([]uint64(nil), (copyBytes+behind)/8)
	b = b[:cap(b)]
	clear(b) // what Grow leaves behind the length is said nowhere
	c := (*Copy)(unsafe.Pointer(&b[0]))
	c.room = uint16(len(b) - copyBytes/8)
	// All are of one level: each copy spares a descent that comes by one READ, wherever it lies, so
	// it is worth as much as it is found. Those nearer to the root are found more often by
	// themselves. Were they of higher levels, a path that is looked up all the time would be READ
	// for ever below copies that nobody asks for.
	c.SetLevel(1)
	return c
}

// keyBytes is what so many keys take with a prefix.
func keyBytes(keys, prefix int) int { return (keys + prefix + 7) &^ 7 }

// behind is what lies so many bytes behind the struct.
func (c *Copy) behind(offset int) unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(c), copyBytes+offset)
}

// partial are the keys.
func (c *Copy) partial() []byte { return unsafe.Slice((*byte)(c.behind(0)), c.keys) }

// Prefix is the prefix. It never changes.
func (c *Copy) Prefix() []byte { return unsafe.Slice((*byte)(c.behind(int(c.keys))), c.Length) }

// Header is the node's head.
func (c *Copy) Header() Header {
	h := Header{Outline: c.Outline}
	copy(h.Prefix[:], c.Prefix())
	return h
}

// Mismatch returns the first place at which key does not have the prefix; -1 if it has all of it.
func (c *Copy) Mismatch(key []byte) int { return c.mismatch(c.Prefix(), key) }

// word is where the word of slot i lies, for which there is room.
func (c *Copy) word(i int) *atomic.Uint64 {
	return (*atomic.Uint64)(c.behind(keyBytes(int(c.keys), int(c.Length)) + SlotBytes*i))
}

// words are the words that there is room for.
func (c *Copy) words() []atomic.Uint64 {
	return unsafe.Slice(c.word(0), min(int(c.room), c.Size()))
}

// Size is how many slots the node has.
func (c *Copy) Size() int { return c.Kind.Slots() }

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

// memory is what c takes: what was allocated.
func (c *Copy) memory() int {
	return copyBytes + keyBytes(int(c.keys), int(c.Length)) + SlotBytes*int(c.room)
}

// Word returns the word of a slot: 0 if there is no room for it, as of an empty one.
func (c *Copy) Word(i int) Slot {
	if i >= int(c.room) {
		return 0
	}
	return Slot(c.word(i).Load())
}

// store keeps a word that was READ or changed by an operation under way, if there is room. Learn
// makes room where there is none.
func (c *Copy) store(i int, s Slot) (kept bool) {
	if i >= int(c.room) {
		return false
	}
	c.word(i).Store(uint64(s))
	return true
}

// Decode makes c the node that was READ from a. It reports false if b is no inner node of a type.
func (c *Copy) Decode(lay *Layout, a pool.Addr, t NodeType, b []byte) bool {
	var h Header
	if !h.Decode(lay.Sums, b, a) || h.Kind != t {
		return false
	}
	c.Addr, c.Ends, c.Outline = a, lay.Ends, h.Outline
	c.fill(h.Prefix[:h.Length], b)
	return true
}

// adopt makes c, which NewCopy made, the node of n with the slots of b.
func (c *Copy) adopt(n *Copy, b []byte) {
	c.Addr, c.Ends, c.Outline = n.Addr, n.Ends, n.Outline
	c.fill(n.Prefix(), b)
}

// fill takes the prefix, and the slots from b.
func (c *Copy) fill(prefix, b []byte) {
	n, base, keys := c.Size(), c.Base(), 0
	if c.Kind != Direct {
		for base+keys < n && !GetSlot(b, base+keys).Empty() {
			keys++
		}
	}
	c.keys, c.room = uint8(keys), uint16(n)
	for i := range c.partial() {
		c.partial()[i] = GetSlot(b, base+i).Key()
	}
	copy(c.Prefix(), prefix)
	words := c.words()
	for i := range words {
		words[i].Store(uint64(GetSlot(b, i)))
	}
}

// Clone is a copy of c with no more room than it takes.
func (c *Copy) Clone() *Copy { return c.cloneWith(0) }

// cloneWith is a copy of c with room for at least so many slots, and for one word: the node may
// have no child at all. What sessions store in c at the same time may not be in it. Each slot is
// looked at twice, and an old word that a session stores between may empty it. So its key is taken
// from the first look, which counts the keys.
func (c *Copy) cloneWith(slots int) *Copy {
	var late [mostKeys]byte // keys that came after c was made
	base, first := c.Base(), int(c.keys)
	filled, keys := max(slots, base+first, 1), first
	for i := range c.words() {
		w := c.Word(i)
		if w.Empty() {
			continue
		}
		filled = max(filled, i+1)
		if i == base+keys && c.Kind != Direct {
			late[keys] = w.Key()
			keys++
		}
	}
	if c.Kind == Direct {
		filled = c.Size()
	}
	behind := keyBytes(keys, int(c.Length))
	n := newCopy(behind + SlotBytes*filled)
	n.room -= uint16(behind / 8)
	n.Addr, n.Version, n.Stamp = c.Addr, c.Version, c.Stamp
	n.Outline, n.Ends, n.keys = c.Outline, c.Ends, uint8(keys)
	copy(n.partial()[copy(n.partial(), c.partial()):], late[first:])
	copy(n.Prefix(), c.Prefix())
	for i := range c.words() {
		n.store(i, c.Word(i))
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
	for i = c.Base() + int(c.keys); i < c.Size(); i++ {
		if w := c.Word(i); w.Empty() || w.Key() == byte(b) {
			return i, w
		}
	}
	return -1, 0
}

// Children counts the children in the words.
func (c *Copy) Children() (n int) {
	for i := range c.words() {
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
	return append(append(b, c.Prefix()[from-int(c.Depth):]...), w.Key())
}

// single is the only child of c; 0 if it has none, or several.
func (c *Copy) single() (only Slot) {
	for i := range c.words() {
		if w := c.Word(i); w.Child() {
			if only != 0 {
				return 0
			}
			only = w
		}
	}
	return only
}
