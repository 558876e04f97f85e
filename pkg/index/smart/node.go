package smart

import (
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum"
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
	headBytes  = 24
	atDepth    = 10
	atLength   = 12
	atPrefix   = 13
	mostPrefix = headBytes - atPrefix

	kindLeaf  = 200
	kindBlock = 255 // package blocks
)

// head is the head of an inner node.
type head struct {
	kind   nodeType
	length uint8
	depth  uint16
	prefix [mostPrefix]byte
}

// end is where the prefix ends in the keys below: the place of the byte that branches.
func (h *head) end() int { return int(h.depth) + int(h.length) }

// setPrefix makes the head that of keys which have p at depth.
func (h *head) setPrefix(depth int, p []byte) {
	h.depth, h.length = uint16(depth), uint8(copy(h.prefix[:], p))
}

// under reports whether a slot of the node p can lead to h. The byte of the slot comes where p's
// prefix ends, and h's prefix ends behind that, and begins there at the latest. So the prefixes on
// a way from the root only grow, and every way ends, wherever a damaged slot leads.
func (h *head) under(p *head) bool {
	return h.end() > p.end() && int(h.depth) <= p.end()+1
}

// mismatch returns the first place at which key does not have the prefix; -1 if it has all of it.
func (h *head) mismatch(key []byte) int {
	for i := range int(h.length) {
		if at := int(h.depth) + i; at >= len(key) || key[at] != h.prefix[i] {
			return at
		}
	}
	return -1
}

// build makes the head's image in b, whose slots are empty then. The node is to lie at a.
func (h *head) build(k *sum.Key, b []byte, a pool.Addr, version uint32) []byte {
	b = b[:h.kind.bytes()]
	clear(b)
	binary.LittleEndian.PutUint32(b[unit.AtVersion:], version)
	b[unit.AtKind], b[unit.AtFlags] = byte(h.kind), unit.Node
	binary.LittleEndian.PutUint16(b[atDepth:], h.depth)
	b[atLength] = h.length
	copy(b[atPrefix:headBytes], h.prefix[:h.length])
	unit.SealUnder(k, b, headBytes, a, version)
	return b
}

// decode reports whether b, READ from a, begins as an inner node.
func (h *head) decode(k *sum.Key, b []byte, a pool.Addr) bool {
	if b[unit.AtFlags] != unit.Node || b[unit.AtKind] == 0 || b[unit.AtKind] > byte(direct) ||
		!unit.VerifyUnder(k, b, headBytes, a, unit.Version(b)) || b[atLength] > mostPrefix {
		return false
	}
	h.kind = nodeType(b[unit.AtKind])
	h.depth = binary.LittleEndian.Uint16(b[atDepth:])
	h.length = b[atLength]
	copy(h.prefix[:], b[atPrefix:headBytes])
	return true
}

func getSlot(b []byte, i int) slot {
	return slot(binary.LittleEndian.Uint64(b[slotAt(i):]))
}

func putSlot(b []byte, i int, s slot) {
	binary.LittleEndian.PutUint64(b[slotAt(i):], uint64(s))
}

// isDead reports whether b is the head of a node or leaf that is out.
func isDead(a pool.Addr, b []byte) bool { return unit.IsDead(a, b) }

// marks implements pool.Marks. What makes a node dead is over when it is marked: first it is out,
// then it is marked. Cached nodes lead to inner nodes and leaves, but not to blocks.
func marks(a pool.Addr, b []byte) pool.Mark {
	switch {
	case !isDead(a, b):
		return pool.Used
	case b[unit.AtKind] == kindBlock:
		return pool.Uncached
	}
	return pool.Over
}
