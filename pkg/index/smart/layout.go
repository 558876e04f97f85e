package smart

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum"
)

// slot is a word of an inner node (section 4.1.1): all that is known of one child.
//
//	bits   field
//	56-63  partial key: the byte of the child's keys behind the node's prefix
//	55     the child is a leaf
//	48-54  of an inner node its type, of a leaf how much to READ (leafCode); 0 = a tombstone
//	47     frozen: the word never changes any more
//	0-46   the child's address, packed; of a tombstone, a random number
//
// A word that is 0, but for frozen, is empty: it never had a child. An empty word gets its partial
// key once, and keeps it as long as the node lives. So a word is empty, then has children and
// tombstones in turn, then is frozen.
type slot uint64

const (
	frozen   slot = 1 << 47
	leafFlag slot = 1 << 55

	addrMask slot = 1<<47 - 1

	slotBytes = 8

	// addresses are multiples of 64: 13 bits of the server, 34 of the offset
	serverBits = 13
	offsetBits = 34
	addrUnit   = 64
)

// pack packs an address. ok is false if it does not fit: the server's number is above 8191, or the
// offset reaches 1 TiB.
func pack(a pool.Addr) (s slot, ok bool) {
	unit := a.Offset() / addrUnit
	if a.Server() >= 1<<serverBits || unit >= 1<<offsetBits {
		return 0, false
	}
	return slot(a.Server())<<offsetBits | slot(unit), true
}

// addr returns the address in s.
func (s slot) addr() pool.Addr {
	u := uint64(s & addrMask)
	if u == 0 {
		return pool.Nil
	}
	return pool.NewAddr(uint16(u>>offsetBits), u&(1<<offsetBits-1)*addrUnit)
}

func (s slot) key() byte    { return byte(s >> 56) }
func (s slot) code() uint8  { return uint8(s>>48) & 127 }
func (s slot) clean() slot  { return s &^ frozen }
func (s slot) frozen() bool { return s&frozen != 0 }
func (s slot) empty() bool  { return s.clean() == 0 }
func (s slot) leaf() bool   { return s&leafFlag != 0 }
func (s slot) tomb() bool   { return !s.empty() && s>>48&255 == 0 }
func (s slot) inner() bool  { return !s.leaf() && s.code() != 0 }
func (s slot) child() bool  { return s>>48&255 != 0 }

// withKey returns s with another partial key.
func (s slot) withKey(k byte) slot { return s&^(255<<56) | slot(k)<<56 }

// innerSlot is the word of an inner node of a type.
func innerSlot(k byte, t nodeType, at slot) slot { return slot(k)<<56 | slot(t)<<48 | at }

// damaged reports whether s says of a child what no client says: memory was damaged, or a program
// wrote what it must not. Slots have no sum; what they lead to has. end: s is an end slot, which
// leads to leaves only. What a slot of an inner node leads to is asked besides (head.under).
func (l *layout) damaged(s slot, end bool) bool {
	return s.inner() && (end || nodeType(s.code()) > direct) || s.leaf() && s.leafBytes() > l.maxRead
}

// leafSlot is the word of a leaf of which so many bytes are READ.
func leafSlot(k byte, bytes int, at slot) slot {
	return slot(k)<<56 | leafFlag | slot(leafCode(bytes))<<48 | at
}

// tombOf is the word that takes the place of s when its child is taken out. unique is a random
// number: the slot had no such tombstone before. The child's address would not do, since its memory
// is used again, perhaps below the same slot, while somebody has the tombstone.
func tombOf(s slot, unique uint64) slot {
	return s.clean()&^(1<<56-1) | 1 | slot(unique)&addrMask
}

// Leaves of up to fineLeaf bytes are READ in units of 8, larger ones in units of coarseUnit.
const (
	fineLeaf   = 512
	coarseUnit = 128
	mostLeaf   = fineLeaf + 63*coarseUnit
)

// leafCode is what says to READ at least so many bytes of a leaf.
func leafCode(bytes int) int {
	if bytes <= fineLeaf {
		return (bytes + 7) / 8
	}
	return fineLeaf/8 + (bytes-fineLeaf+coarseUnit-1)/coarseUnit
}

// leafBytes is how much to READ of the leaf of s.
func (s slot) leafBytes() int {
	c := int(s.code())
	if c <= fineLeaf/8 {
		return 8 * c
	}
	return fineLeaf + (c-fineLeaf/8)*coarseUnit
}

// nodeType is the type of an inner node: how many slots it has.
type nodeType uint8

// shapes are the types. Each fills the lines of 64 bytes that it takes, since nodes are allocated
// in these. Types count from 1. The last one has a slot for each byte, and needs no search. What a
// damaged slot may say besides has no slots.
var shapes = [128]int{0, 5, 13, 21, 29, 45, 61, 93, 125, 257}

const (
	firstType nodeType = 1
	direct    nodeType = 9
	mostSlots          = 257
)

// slots is how many slots a node of the type has, the end slot included.
func (t nodeType) slots() int { return shapes[t] }

// bytes is how much of a node is READ and written.
func (t nodeType) bytes() int { return headBytes + slotBytes*shapes[t] }

// slotAt is where a slot lies in its node.
func slotAt(i int) int { return headBytes + slotBytes*i }

// typeFor is the smallest type with so many slots.
func typeFor(slots int) nodeType {
	for t := firstType; t < direct; t++ {
		if shapes[t] >= slots {
			return t
		}
	}
	return direct
}

// layout is what the bytes of an index depend on. It does not change while the index is open.
type layout struct {
	item.Codec
	// slot 0 of each inner node is for the key that ends with the node's prefix; with uint64 keys
	// there is none, as no key is a prefix of another one
	ends     bool
	maxLeaf  int // bytes of the largest leaf
	maxRead  int // what is READ of a leaf at most; smaller ones may fill their memory better
	nodeSize int // what was asked for as the size of nodes: a leaf is not larger; 0 = any
	// of leaves and heads; nil until the index has a secret
	sums *sum.Key
}

const (
	// defaultInline is the longest value that lies in its leaf, unless the options say otherwise
	defaultInline = 256
	maxNodeBytes  = 64 << 10
)

// newLayout checks options and fills in defaults.
func newLayout(o index.Options) (l layout, err error) {
	if l.Codec, err = item.NewCodec(o); err != nil {
		return l, err
	}
	if o.Neighbourhood != 0 {
		return l, errors.New("the design has no neighbourhoods")
	}
	if o.InlineBytes == 0 {
		l.SetInline(min(defaultInline, l.MaxValue))
	}
	l.ends, l.nodeSize = !l.Uint64, o.NodeBytes
	if l.MaxValue > blocks.MaxValue {
		return l, fmt.Errorf("values of at most %d bytes: the limit is %d", l.MaxValue, blocks.MaxValue)
	}
	largest := l.Inline
	if l.Blocks {
		largest = max(largest, referenceBytes)
	}
	most := newShape(l.MaxKey, largest)
	l.maxLeaf, l.maxRead = most.bytes(), most.allocated()
	limit := mostLeaf
	if o.NodeBytes != 0 {
		if o.NodeBytes < 0 || o.NodeBytes > maxNodeBytes || o.NodeBytes%8 != 0 {
			return l, fmt.Errorf("nodes of %d bytes: a multiple of 8 up to %d, or 0", o.NodeBytes, maxNodeBytes)
		}
		limit = min(limit, o.NodeBytes)
	}
	if l.maxLeaf > limit {
		return l, fmt.Errorf("a leaf of a key of %d bytes and a value of %d in it has %d, at most %d are possible", l.MaxKey, largest, l.maxLeaf, limit)
	}
	return l, nil
}

// base is the first slot that is not the end slot.
func (l *layout) base() int {
	if l.ends {
		return 1
	}
	return 0
}

// endBranch is the branch of a key that ends with a node's prefix.
const endBranch = -1

// branch is where key goes on from a node whose prefix ends at depth: the next byte, or endBranch.
func branch(key []byte, depth int) int {
	if depth >= len(key) {
		return endBranch
	}
	return int(key[depth])
}

// branchKey is the partial key of a branch.
func branchKey(b int) byte {
	if b == endBranch {
		return 0
	}
	return byte(b)
}
