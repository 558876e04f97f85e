// Package fence has what the nodes of a B-link tree have in common: a header with fence keys and a
// right sibling (Lehman and Yao, ACM TODS 6(4), 1981), and what the formats of an index depend on.
package fence

import (
	"bytes"
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Every node begins with a header, little-endian. Its first unit is of a leaf the header, of an
// inner node the whole node.
//
//	offset  size  field
//	0       10    version, sum, kind, flags: see package unit. The kind is the level; 0 is a leaf
//	              flags: bit 0 rightmost (no upper bound, no sibling), bit 1 dead, bit 7 set
//	10      2     count: of a leaf's slots, of an inner node's children
//	12      2     length of the low fence
//	14      2     length of the high fence
//	16      8     address of the right sibling
//	24      ...   low fence, high fence, zeros up to a multiple of 8
//
// A node holds the keys k with low fence <= k < high fence. The fences of an index of uint64 keys
// always have 8 bytes.
//
// A dead node, whose content its left sibling has, is a header without fences, count and sibling,
// and nothing else.
const (
	// Where these fields stand.
	AtCount   = 10
	AtLowLen  = 12
	AtHighLen = 14
	AtSibling = 16

	// HeaderBytes is where the fences of a node begin.
	HeaderBytes = 24

	rightmost = 1 << 0
)

// Header is a decoded header. The fences are a part of the node's bytes.
type Header struct {
	Version   uint32
	Level     uint8
	Rightmost bool
	Count     int
	Low, High []byte
	Sibling   pool.Addr
	End       int // where the header ends
}

// Decode decodes b, which may be any bytes. It reports false if they are no header. It does not
// verify it.
func (h *Header) Decode(b []byte, l *Layout) bool {
	flags := b[unit.AtFlags]
	if flags&^rightmost != unit.Node {
		return false
	}
	low := int(binary.LittleEndian.Uint16(b[AtLowLen:]))
	high := int(binary.LittleEndian.Uint16(b[AtHighLen:]))
	if low > l.MaxKey || high > l.MaxKey || l.Uint64 && (low != 8 || high != 8) {
		return false
	}
	if h.End = RoundUp(HeaderBytes + low + high); h.End > len(b) {
		return false // before the fences are sliced: a layout may come from a request, and not fit
	}
	h.Version = unit.Version(b)
	h.Level = b[unit.AtKind]
	h.Rightmost = flags&rightmost != 0
	h.Count = int(binary.LittleEndian.Uint16(b[AtCount:]))
	h.Low = b[HeaderBytes : HeaderBytes+low]
	h.High = b[HeaderBytes+low : HeaderBytes+low+high]
	h.Sibling = pool.Addr(binary.LittleEndian.Uint64(b[AtSibling:]))
	return true
}

// Encode writes all of h but its sum to b and sets h.End.
func (h *Header) Encode(b []byte) {
	binary.LittleEndian.PutUint32(b[unit.AtVersion:], h.Version)
	b[unit.AtKind] = h.Level
	b[unit.AtFlags] = unit.Node
	if h.Rightmost {
		b[unit.AtFlags] |= rightmost
	}
	binary.LittleEndian.PutUint16(b[AtCount:], uint16(h.Count))
	binary.LittleEndian.PutUint16(b[AtLowLen:], uint16(len(h.Low)))
	binary.LittleEndian.PutUint16(b[AtHighLen:], uint16(len(h.High)))
	binary.LittleEndian.PutUint64(b[AtSibling:], uint64(h.Sibling))
	n := HeaderBytes
	n += copy(b[n:], h.Low)
	n += copy(b[n:], h.High)
	h.End = RoundUp(n)
	clear(b[n:h.End])
}

// Side says which node of a level is looked for.
type Side uint8

const (
	Holding Side = iota // the node that holds the key
	// the node with the largest keys below the key; without a key: the last node
	Ending
)

// Above reports whether key lies above the node's range: its right sibling knows more.
func (h *Header) Above(key []byte) bool { return !h.Rightmost && bytes.Compare(key, h.High) >= 0 }

// Below reports whether key lies below the node's range: nothing that is right leads there with it.
func (h *Header) Below(key []byte) bool { return bytes.Compare(key, h.Low) < 0 }

// Beyond reports whether what is looked for lies to the right of the node.
func (h *Header) Beyond(key []byte, at Side) bool {
	if h.Rightmost {
		return false
	}
	if at == Ending {
		return len(key) == 0 || item.Below(h.High, key)
	}
	return !item.Below(key, h.High)
}

// Before reports whether what is looked for lies to the left of the node.
func (h *Header) Before(key []byte, at Side) bool {
	if at == Ending {
		return len(key) != 0 && !item.Below(h.Low, key)
	}
	return item.Below(key, h.Low)
}
