package art

import "github.com/dmindex/dmindex/pkg/pool"

// Slot is a word of an inner node (SMART, section 4.1.1): all that is known of one child.
//
//	bits   field
//	56-63  partial key: the byte of the child's keys behind the node's prefix
//	55     the child is a leaf
//	48-54  of an inner node its type, of a leaf how much to READ (LeafCode), or bits of its place
//	       (Layout.WordWithPlace); 0, and 55 is 0: a tombstone
//	47     frozen: the word never changes any more
//	0-46   the child's address, packed; of a tombstone, a random number
//
// A word that is 0, but for frozen, is empty: it never had a child. An empty word gets its partial
// key once, and keeps it as long as the node lives. So a word is empty, then has children and
// tombstones in turn, then is frozen.
type Slot uint64

// Fields of a slot, and its size.
const (
	Frozen   Slot = 1 << 47
	LeafFlag Slot = 1 << 55

	AddrMask Slot = 1<<47 - 1
	codeMask Slot = 127 << 48

	SlotBytes = 8
)

// Addresses in slots are multiples of AddrUnit.
const (
	ServerBits = 13
	OffsetBits = 34
	AddrUnit   = 64
)

// Pack packs an address. ok is false if it does not fit: the server's number is above 8191, or the
// offset reaches 1 TiB.
func Pack(a pool.Addr) (s Slot, ok bool) {
	unit := a.Offset() / AddrUnit
	if a.Server() >= 1<<ServerBits || unit >= 1<<OffsetBits {
		return 0, false
	}
	return Slot(a.Server())<<OffsetBits | Slot(unit), true
}

// Addr returns the address in s.
func (s Slot) Addr() pool.Addr {
	u := uint64(s & AddrMask)
	if u == 0 {
		return pool.Nil
	}
	return pool.NewAddr(uint16(u>>OffsetBits), u&(1<<OffsetBits-1)*AddrUnit)
}

// Key is the partial key.
func (s Slot) Key() byte { return byte(s >> 56) }

// Code is the type of an inner node, or what the word says of a leaf.
func (s Slot) Code() uint8 { return uint8(s>>48) & 127 }

// Clean is s without being frozen.
func (s Slot) Clean() Slot { return s &^ Frozen }

// Frozen reports whether s never changes any more.
func (s Slot) Frozen() bool { return s&Frozen != 0 }

// Empty reports whether there never was a child.
func (s Slot) Empty() bool { return s.Clean() == 0 }

// Leaf reports whether the child is a leaf.
func (s Slot) Leaf() bool { return s&LeafFlag != 0 }

// Tomb reports whether there was a child, and is none.
func (s Slot) Tomb() bool { return !s.Empty() && s>>48&255 == 0 }

// Inner reports whether the child is an inner node.
func (s Slot) Inner() bool { return !s.Leaf() && s.Code() != 0 }

// Child reports whether there is a child.
func (s Slot) Child() bool { return s>>48&255 != 0 }

// WithKey returns s with another partial key.
func (s Slot) WithKey(k byte) Slot { return s&^(255<<56) | Slot(k)<<56 }

// InnerSlot is the word of an inner node of a type.
func InnerSlot(k byte, t NodeType, at Slot) Slot { return Slot(k)<<56 | Slot(t)<<48 | at }

// LeafSlot is the word of a leaf of which so many bytes are READ.
func LeafSlot(k byte, bytes int, at Slot) Slot {
	return Slot(k)<<56 | LeafFlag | Slot(LeafCode(bytes))<<48 | at
}

// TombOf is the word that takes the place of s when its child is taken out. unique is a random
// number: the slot had no such tombstone before. The child's address would not do, since its memory
// is used again, perhaps below the same slot, while somebody has the tombstone.
func TombOf(s Slot, unique uint64) Slot {
	return s.Clean()&^(1<<56-1) | 1 | Slot(unique)&AddrMask
}

// Leaves of up to fineLeaf bytes are READ in units of 8, larger ones in units of coarseUnit.
const (
	fineLeaf   = 512
	coarseUnit = 128

	// MostLeafBytes is how much of a leaf a slot can say at most.
	MostLeafBytes = fineLeaf + 63*coarseUnit
)

// LeafCode is what says to READ at least so many bytes of a leaf.
func LeafCode(bytes int) int {
	if bytes <= fineLeaf {
		return (bytes + 7) / 8
	}
	return fineLeaf/8 + (bytes-fineLeaf+coarseUnit-1)/coarseUnit
}

// LeafBytes is how much to READ of the leaf of s, where slots say that (Layout.LeafBytesOf).
func (s Slot) LeafBytes() int {
	c := int(s.Code())
	if c <= fineLeaf/8 {
		return 8 * c
	}
	return fineLeaf + (c-fineLeaf/8)*coarseUnit
}
