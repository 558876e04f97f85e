package art

import (
	"encoding/binary"
	"github.com/dmindex/dmindex/pkg/sum"

	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// An inner node:
//
//	offset  size  field
//	0       8     version (random), sum of bytes 8 to 24: see package unit
//	8       1     type
//	9       1     flags
//	10      2     depth: where its prefix begins in the keys below it, little-endian
//	12      1     length of the prefix
//	13      11    the prefix: all keys below have these bytes there
//	24      8n    slots, little-endian
//
// The head never changes while the node lives. All keys below have it from the node's first moment
// to its last one: a node that is put in above takes none of it away. When the node is out the head
// becomes a dead mark; the slots, which are the targets of atomics, are never WRITTEN again. Users
// choose prefixes, and a READ beside the mark may get a part of both. So the head has a sum under
// the index's secret. A mixture that verified would say that keys below have another prefix.
const (
	HeadBytes = 24
	atDepth   = 10
	atLength  = 12
	atPrefix  = 13

	// MostPrefix is how long a prefix may be.
	MostPrefix = HeadBytes - atPrefix
)

// Kinds of what is no inner node. Those of inner nodes are their types.
const (
	KindLeaf  = 200
	kindBlock = 255 // package blocks
)

// Outline is what the head of an inner node says besides the bytes of the prefix.
type Outline struct {
	Kind   NodeType
	Length uint8  // of the prefix
	Depth  uint16 // where it begins in the keys below
}

// Header is the head of an inner node.
type Header struct {
	Outline
	Prefix [MostPrefix]byte
}

// End is where the prefix ends in the keys below: the place of the byte that branches.
func (o *Outline) End() int { return int(o.Depth) + int(o.Length) }

// setPrefix makes the head that of keys which have p at depth.
func (h *Header) setPrefix(depth int, p []byte) {
	h.Depth, h.Length = uint16(depth), uint8(copy(h.Prefix[:], p))
}

// Under reports whether a slot of the node p can lead to o. The byte of the slot comes where p's
// prefix ends, and o's prefix ends behind that, and begins there at the latest. So the prefixes on
// a way from the root only grow, and every way ends, wherever a damaged slot leads.
func (o *Outline) Under(p *Outline) bool {
	return o.End() > p.End() && int(o.Depth) <= p.End()+1
}

// mismatch returns the first place at which key does not have the prefix, which is that of o; -1 if
// it has all of it.
func (o *Outline) mismatch(prefix, key []byte) int {
	for i, b := range prefix {
		if at := int(o.Depth) + i; at >= len(key) || key[at] != b {
			return at
		}
	}
	return -1
}

// Build makes the head's image in b, whose slots are empty then. The node is to lie at a.
func (h *Header) Build(k *sum.Key, b []byte, a pool.Addr, version uint32) []byte {
	b = b[:h.Kind.Bytes()]
	clear(b)
	binary.LittleEndian.PutUint32(b[unit.AtVersion:], version)
	b[unit.AtKind], b[unit.AtFlags] = byte(h.Kind), unit.Node
	binary.LittleEndian.PutUint16(b[atDepth:], h.Depth)
	b[atLength] = h.Length
	copy(b[atPrefix:HeadBytes], h.Prefix[:h.Length])
	unit.SealUnder(k, b, HeadBytes, a, version)
	return b
}

// Decode reports whether b, READ from a, begins as an inner node.
func (h *Header) Decode(k *sum.Key, b []byte, a pool.Addr) bool {
	if b[unit.AtFlags] != unit.Node || b[unit.AtKind] == 0 || b[unit.AtKind] > byte(Direct) ||
		!unit.VerifyUnder(k, b, HeadBytes, a, unit.Version(b)) || b[atLength] > MostPrefix {
		return false
	}
	h.Kind = NodeType(b[unit.AtKind])
	h.Depth = binary.LittleEndian.Uint16(b[atDepth:])
	h.Length = b[atLength]
	copy(h.Prefix[:], b[atPrefix:HeadBytes])
	return true
}

// GetSlot is slot i of b, a node.
func GetSlot(b []byte, i int) Slot {
	return Slot(binary.LittleEndian.Uint64(b[SlotAt(i):]))
}

// putSlot writes slot i of b, a node.
func putSlot(b []byte, i int, s Slot) {
	binary.LittleEndian.PutUint64(b[SlotAt(i):], uint64(s))
}

// Marks implements pool.Marks. What makes a node dead is over when it is marked: first it is out,
// then it is marked. Cached nodes lead to inner nodes and leaves, but not to blocks.
func Marks(a pool.Addr, b []byte) pool.Mark {
	switch {
	case !unit.IsDead(a, b):
		return pool.Used
	case b[unit.AtKind] == kindBlock:
		return pool.Uncached
	}
	return pool.Over
}
