package blink

import (
	"bytes"
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Every node begins with a header, little-endian. Its first unit is of a leaf the header, of an
// inner node the whole node.
//
//	offset  size  field
//	0       10    version, CRC, kind, flags: see package unit. The kind is the level; 0 is a leaf
//	              flags: bit 0 rightmost (no upper bound, no sibling), bit 1 dead, bit 7 always set
//	10      2     count: of a leaf's slots, of an inner node's children
//	12      2     length of the low fence
//	14      2     length of the high fence
//	16      8     address of the right sibling
//	24      ...   low fence, high fence, zeros up to a multiple of 8
//
// A node holds the keys k with low fence <= k < high fence. The fences of an index of uint64 keys always have 8 bytes.
//
// A dead node, whose content its left sibling has, is a header without fences, count and sibling, and nothing else.
const (
	atCount   = 10
	atLowLen  = 12
	atHighLen = 14
	atSibling = 16

	// HeaderBytes is where the fences of a node begin.
	HeaderBytes = 24

	flagRightmost = 1 << 0
)

// header is a decoded header. The fences are part of the node's bytes.
type header struct {
	version   uint32
	level     uint8
	rightmost bool
	count     int
	low, high []byte
	sibling   pool.Addr
	end       int // where the header ends
}

// decodeHeader decodes b, which may be any bytes; ok is false if they are no header. It does not verify the CRC.
func (h *header) decode(b []byte, l *layout) bool {
	flags := b[unit.AtFlags]
	if flags&^flagRightmost != unit.Node {
		return false
	}
	low, high := int(binary.LittleEndian.Uint16(b[atLowLen:])), int(binary.LittleEndian.Uint16(b[atHighLen:]))
	if low > l.MaxKey || high > l.MaxKey || l.Uint64 && (low != 8 || high != 8) {
		return false
	}
	if h.end = roundUp(HeaderBytes + low + high); h.end > len(b) {
		return false // before the fences are sliced: a layout may come from a request, and not fit the node
	}
	h.version = binary.LittleEndian.Uint32(b)
	h.level = b[unit.AtKind]
	h.rightmost = flags&flagRightmost != 0
	h.count = int(binary.LittleEndian.Uint16(b[atCount:]))
	h.low = b[HeaderBytes : HeaderBytes+low]
	h.high = b[HeaderBytes+low : HeaderBytes+low+high]
	h.sibling = pool.Addr(binary.LittleEndian.Uint64(b[atSibling:]))
	return true
}

// encode writes all of h but its CRC to b and sets h.end.
func (h *header) encode(b []byte) {
	binary.LittleEndian.PutUint32(b[unit.AtVersion:], h.version)
	b[unit.AtKind] = h.level
	b[unit.AtFlags] = unit.Node
	if h.rightmost {
		b[unit.AtFlags] |= flagRightmost
	}
	binary.LittleEndian.PutUint16(b[atCount:], uint16(h.count))
	binary.LittleEndian.PutUint16(b[atLowLen:], uint16(len(h.low)))
	binary.LittleEndian.PutUint16(b[atHighLen:], uint16(len(h.high)))
	binary.LittleEndian.PutUint64(b[atSibling:], uint64(h.sibling))
	n := HeaderBytes
	n += copy(b[n:], h.low)
	n += copy(b[n:], h.high)
	h.end = roundUp(n)
	clear(b[n:h.end])
}

// above says whether key lies above the node's range: its right sibling knows more.
func (h *header) above(key []byte) bool { return !h.rightmost && bytes.Compare(key, h.high) >= 0 }
