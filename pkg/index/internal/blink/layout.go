// Package blink is a B-link tree on disaggregated memory, after Sherman (Wang, Lu, Shu: SIGMOD 2022): the node formats and the structure changes that
// designs share.
//
// Nodes of fixed size lie in the memory servers, and each has a sibling pointer and fence keys. Changes take a node's lock (hierarchical, in
// pkg/pool), one at a time; lookups and scans take none. Leaves are slotted and unsorted, and a change of one pair writes that
// entry and one slot word. docs/design/sherman.md says for each remote request what others may see after it and why that is safe. A
// design whose leaves have owners keeps some of them in a cache, dirty ones, too: see Keeper.
package blink

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/dmindex/dmindex/pkg/index"
)

// Limits of the formats: a slot word has 12 bits for an offset in units of 8 bytes, and 12 for a length in bytes.
const (
	maxNodeBytes  = 32 << 10
	minNodeBytes  = 256
	maxEntryBytes = 1<<12 - 1
	defaultNode   = 1 << 10
	leastInline   = 64  // what leaves are made large enough for
	mostInline    = 256 // and what they are not made larger for
	unit          = 8   // what offsets in a leaf count
)

// layout is what the formats of all nodes of one index depend on.
type layout struct {
	uint64Keys bool
	nodeBytes  int
	maxKey     int
	maxValue   int
	inline     int    // longest value that lies in its entry
	long       bool   // there can be longer ones
	bottom     []byte // the lowest key; not to be changed
	hints      bool   // copies of inner nodes have room for a keeper's hints
}

// newLayout checks options and fills in defaults.
func newLayout(o index.Options) (layout, error) {
	l := layout{uint64Keys: o.Uint64, nodeBytes: o.NodeBytes, maxKey: o.MaxKeyBytes, maxValue: o.MaxValueBytes}
	if l.uint64Keys {
		if l.maxKey != 0 && l.maxKey != 8 {
			return l, fmt.Errorf("uint64 keys have 8 bytes, not %d", l.maxKey)
		}
		l.maxKey = 8
	}
	if l.bottom = []byte{}; l.uint64Keys {
		l.bottom = make([]byte, 8)
	}
	switch {
	case l.maxKey < 1:
		return l, fmt.Errorf("keys of at most %d bytes: the limit must be at least 1", l.maxKey)
	case l.maxValue < 0:
		return l, fmt.Errorf("values of at most %d bytes: the limit must not be negative", l.maxValue)
	case l.maxValue > maxBlockValue:
		return l, fmt.Errorf("values of at most %d bytes: %d are possible", l.maxValue, maxBlockValue)
	case o.InlineBytes < 0:
		return l, fmt.Errorf("inline values of at most %d bytes: the limit must not be negative", o.InlineBytes)
	}
	if l.setInline(min(o.InlineBytes, l.maxValue)); o.InlineBytes == 0 {
		l.defaultInline()
	}
	if l.maxKey > maxEntryBytes || l.longestEntry() > maxEntryBytes {
		return l, fmt.Errorf("keys of %d bytes and values of %d in their entries: an entry has at most %d bytes together with %d of its own",
			l.maxKey, l.inline, maxEntryBytes, l.entryBytes(0, 0))
	}
	least := l.leastNode()
	if l.nodeBytes == 0 {
		l.nodeBytes = defaultNodeFor(least)
	}
	if l.nodeBytes < least || l.nodeBytes > maxNodeBytes || l.nodeBytes%64 != 0 {
		return l, fmt.Errorf("nodes of %d bytes: keys of %d and values of %d bytes need a multiple of 64 from %d to %d",
			l.nodeBytes, l.maxKey, l.maxValue, (least+63)&^63, maxNodeBytes)
	}
	return l, nil
}

// setInline sets the inline size.
func (l *layout) setInline(n int) { l.inline, l.long = n, n < l.maxValue }

// defaultInline sets the inline size that a design without a wish has: all values, if they are short; else what fits leaves that are large enough for
// short ones. A longer value costs a lookup a round trip more, but a larger leaf costs all of them.
func (l *layout) defaultInline() {
	l.setInline(min(l.maxValue, mostInline))
	if !l.long {
		return
	}
	node := l.nodeBytes
	if node == 0 {
		l.setInline(leastInline)
		node = defaultNodeFor(l.leastNode())
	}
	for n := mostInline; n > 0; n -= unit {
		if l.setInline(n); l.leastNode() <= node {
			return
		}
	}
}

func defaultNodeFor(least int) int { return max(defaultNode, 1<<bits.Len(uint(least-1))) }

// longestEntry is the size of the largest entry.
func (l *layout) longestEntry() int {
	if l.long {
		return l.entryBytes(l.maxKey, max(l.inline, pointerBytes))
	}
	return l.entryBytes(l.maxKey, l.inline)
}

// leastNode is the smallest node in which a split always makes room. Let m be the largest entry with its slot and K the longest
// fence. Splitting what fills a node and one entry more near the middle leaves at most (node+m)/2 + m/2 on a side, and that must
// fit beside two fences: node >= 2m + 4K + what is fixed. An inner node of that size has room for more than four children.
func (l *layout) leastNode() int {
	m := roundUp(l.longestEntry()) + slotBytes
	return max(minNodeBytes, 2*m+4*roundUp(l.maxKey)+2*HeaderBytes)
}

// An entry is, with Uint64 keys, the key, a byte that says where the value is (if the index has long values), the value; with Bytes keys, the length of
// the key and bit 15 that says where the value is (2), key, value. The value is in its place, or a pointer to its block (block.go).
const (
	inPlace = 0
	inBlock = 1

	flagLong = 1 << 15
)

// entryBytes is the size of an entry, with so many bytes of a key and in the place of a value.
func (l *layout) entryBytes(key, value int) int {
	if l.uint64Keys {
		return l.valueAt() + value
	}
	return 2 + key + value
}

// valueAt is where the value stands in an entry of a Uint64 key.
func (l *layout) valueAt() int {
	if l.long {
		return 9
	}
	return 8
}

// isLong says whether the value of entry e, which is one, is in a block.
func (l *layout) isLong(e []byte) bool {
	switch {
	case !l.long:
		return false
	case l.uint64Keys:
		return e[8] == inBlock
	}
	return binary.LittleEndian.Uint16(e)&flagLong != 0
}

// putPointer is PutEntry for a value in a block.
func (l *layout) putPointer(dst, key []byte, p *pointer) []byte {
	var b [pointerBytes]byte
	p.encode(b[:])
	return l.PutReference(dst, key, b[:])
}

// PutEntry encodes a pair into dst and returns it.
func (l *layout) PutEntry(dst, key, value []byte) []byte {
	e := dst[:l.entryBytes(len(key), len(value))]
	if !l.uint64Keys {
		binary.LittleEndian.PutUint16(e, uint16(len(key)))
		copy(e[2:], key)
		copy(e[2+len(key):], value)
		return e
	}
	copy(e, key)
	at := 8
	if l.long {
		e[8], at = inPlace, 9
	}
	copy(e[at:], value)
	return e
}

// pair decodes an entry; ok is false if it is none. The value is what stands in its place.
func (l *layout) pair(e []byte) (key, value []byte, ok bool) {
	if l.uint64Keys {
		if at := l.valueAt(); len(e) >= at {
			return e[:8], e[at:], true
		}
		return nil, nil, false
	}
	if len(e) < 2 {
		return nil, nil, false
	}
	n := int(binary.LittleEndian.Uint16(e) &^ flagLong)
	if n > len(e)-2 {
		return nil, nil, false
	}
	return e[2 : 2+n], e[2+n:], true
}

// keyOf is the key of an entry that is known to be one.
func (l *layout) keyOf(e []byte) []byte {
	key, _, _ := l.pair(e)
	return key
}

// Fingerprint is 8 bits of a key, by which a lookup passes over most other slots.
func (l *layout) Fingerprint(key []byte) byte {
	if l.uint64Keys {
		return byte(binary.LittleEndian.Uint64(key) * 0x9E3779B97F4A7C15 >> 56)
	}
	return byte(sum(uint32(len(key)), key) >> 24)
}

// CheckPair refuses keys and values that do not fit.
func (l *layout) CheckPair(key, value []byte) error {
	if len(value) > l.maxValue {
		return fmt.Errorf("value of %d bytes, at most %d: %w", len(value), l.maxValue, index.ErrValueTooLong)
	}
	return l.CheckKey(key)
}

// CheckKey refuses keys whose length does not fit.
func (l *layout) CheckKey(key []byte) error {
	if l.uint64Keys {
		if len(key) != 8 {
			return fmt.Errorf("key of %d bytes, uint64 keys have 8: %w", len(key), index.ErrKeyTooLong)
		}
		return nil
	}
	if len(key) > l.maxKey {
		return fmt.Errorf("key of %d bytes, at most %d: %w", len(key), l.maxKey, index.ErrKeyTooLong)
	}
	return nil
}

// separator is a short key s with left < s <= right, and a key of the index (suffix truncation). It is part of right.
func (l *layout) separator(left, right []byte) []byte {
	if l.uint64Keys {
		return right
	}
	return right[:min(len(right), commonPrefix(left, right)+1)]
}

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// prefixOf is the first 8 bytes of a key as a number, so that most comparisons are of numbers. Keys of different prefixes
// compare as these; equal prefixes say nothing unless keys are uint64.
func prefixOf(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var p uint64
	for i, c := range key {
		p |= uint64(c) << (56 - 8*i)
	}
	return p
}

func roundUp(n int) int { return (n + unit - 1) &^ (unit - 1) }

func below(a, b []byte) bool { return bytes.Compare(a, b) < 0 }
