package blink

import (
	"bytes"
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/pool"
)

// Every node begins with a header, little-endian:
//
//	offset  size  field
//	0       4     version of the node: changed by every rewrite, random for a new node
//	4       4     CRC-32C of the unit from offset 8 on: of a leaf the header, of an inner node the whole node
//	8       1     level: 0 is a leaf
//	9       1     flags: bit 0 rightmost (no upper bound, no sibling), bit 1 dead, bit 7 always set
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
	atVersion = 0
	atCheck   = 4
	atLevel   = 8
	atFlags   = 9
	atCount   = 10
	atLowLen  = 12
	atHighLen = 14
	atSibling = 16

	// HeaderBytes is where the fences of a node begin.
	HeaderBytes = 24

	flagRightmost = 1 << 0
	flagDead      = 1 << 1
	flagNode      = 1 << 7 // so that zeroed memory is no node
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
	flags := b[atFlags]
	if flags&^flagRightmost != flagNode {
		return false
	}
	low, high := int(binary.LittleEndian.Uint16(b[atLowLen:])), int(binary.LittleEndian.Uint16(b[atHighLen:]))
	if low > l.maxKey || high > l.maxKey || l.uint64Keys && (low != 8 || high != 8) {
		return false
	}
	if h.end = roundUp(HeaderBytes + low + high); h.end > len(b) {
		return false // before the fences are sliced: a layout may come from a request, and not fit the node
	}
	h.version = binary.LittleEndian.Uint32(b)
	h.level = b[atLevel]
	h.rightmost = flags&flagRightmost != 0
	h.count = int(binary.LittleEndian.Uint16(b[atCount:]))
	h.low = b[HeaderBytes : HeaderBytes+low]
	h.high = b[HeaderBytes+low : HeaderBytes+low+high]
	h.sibling = pool.Addr(binary.LittleEndian.Uint64(b[atSibling:]))
	return true
}

// encode writes all of h but its CRC to b and sets h.end.
func (h *header) encode(b []byte) {
	binary.LittleEndian.PutUint32(b[atVersion:], h.version)
	b[atLevel] = h.level
	b[atFlags] = flagNode
	if h.rightmost {
		b[atFlags] |= flagRightmost
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

// isDead says whether b is what a merge left of the node at a.
func isDead(a pool.Addr, b []byte) bool {
	return b[atFlags] == flagNode|flagDead && verifyUnit(b, HeaderBytes, a, binary.LittleEndian.Uint32(b))
}

// buildDead makes the image of a dead node in b and returns how long it is.
func buildDead(b []byte, a pool.Addr, level uint8, version uint32) int {
	clear(b[:HeaderBytes])
	binary.LittleEndian.PutUint32(b, version)
	b[atLevel], b[atFlags] = level, flagNode|flagDead
	sealUnit(b, HeaderBytes, a, version)
	return HeaderBytes
}

// sealUnit writes the CRC of the unit that ends at end; verifyUnit checks it.
func sealUnit(b []byte, end int, a pool.Addr, version uint32) {
	binary.LittleEndian.PutUint32(b[atCheck:], sum(SeedOf(a, version), b[atLevel:end]))
}

func verifyUnit(b []byte, end int, a pool.Addr, version uint32) bool {
	return binary.LittleEndian.Uint32(b[atCheck:]) == sum(SeedOf(a, version), b[atLevel:end])
}

// above says whether key lies above the node's range: its right sibling knows more.
func (h *header) above(key []byte) bool { return !h.rightmost && bytes.Compare(key, h.high) >= 0 }

// noHigh is the high fence of a rightmost node: of no meaning, but of the right length.
func (l *layout) noHigh() []byte {
	if l.uint64Keys {
		return make([]byte, 8)
	}
	return nil
}
