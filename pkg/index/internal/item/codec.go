// Package item has the keys and values of an index as its nodes hold them: the bytes of an entry,
// fingerprints, separators, and what keys and values are refused.
//
// An entry is one key with its value, or with a reference to the block where its value lies
// (package blocks).
//
//	keys    offset  size  field
//	Uint64  0       8     key, big-endian
//	        8       1     0 = the value follows, 1 = a reference; only if values can lie in blocks
//	        8 or 9  ...   value, or reference
//	Bytes   0       2     length of the key, little-endian; bit 15: a reference, not the value
//	        2       n     key
//	        2+n     ...   value, or reference
//
// Keys of an index of uint64 keys have 8 bytes and compare as integers. Both kinds compare as
// bytes.
package item

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/crc"
)

// ReferenceBytes is the size of a reference in an entry.
const ReferenceBytes = 16

const (
	inPlace = 0
	inBlock = 1

	flagReference = 1 << 15
)

// Codec is what the bytes of an entry depend on. It does not change while an index is open.
type Codec struct {
	Uint64   bool   // keys are uint64
	MaxKey   int    // longest key, in bytes
	MaxValue int    // longest value, in bytes
	Inline   int    // longest value that lies in its entry, in bytes
	Blocks   bool   // there can be longer ones
	Bottom   []byte // the lowest key; not to be changed
}

// NewCodec checks the options of keys and values. Inline is set to InlineBytes, but not above
// MaxValueBytes.
func NewCodec(o index.Options) (c Codec, err error) {
	c = Codec{Uint64: o.Uint64, MaxKey: o.MaxKeyBytes, MaxValue: o.MaxValueBytes, Bottom: []byte{}}
	if c.Uint64 {
		if c.MaxKey != 0 && c.MaxKey != 8 {
			return c, fmt.Errorf("uint64 keys have 8 bytes, not %d", c.MaxKey)
		}
		c.MaxKey, c.Bottom = 8, make([]byte, 8)
	}
	switch {
	case c.MaxKey < 1:
		return c, fmt.Errorf("keys of at most %d bytes: the limit must be at least 1", c.MaxKey)
	case c.MaxValue < 0:
		return c, fmt.Errorf("values of at most %d bytes: the limit must not be negative", c.MaxValue)
	case o.InlineBytes < 0:
		return c, fmt.Errorf("inline values of at most %d bytes: the limit must not be negative",
			o.InlineBytes)
	}
	c.SetInline(min(o.InlineBytes, c.MaxValue))
	return c, nil
}

// SetInline makes n the longest value that lies in its entry.
func (c *Codec) SetInline(n int) { c.Inline, c.Blocks = n, n < c.MaxValue }

// LongestEntry returns the size of the largest entry.
func (c *Codec) LongestEntry() int {
	if c.Blocks {
		return c.EntryBytes(c.MaxKey, max(c.Inline, ReferenceBytes))
	}
	return c.EntryBytes(c.MaxKey, c.Inline)
}

// EntryBytes returns the size of an entry with so many bytes of a key, and of a value or reference.
func (c *Codec) EntryBytes(key, value int) int {
	if c.Uint64 {
		return c.valueOffset() + value
	}
	return 2 + key + value
}

// valueOffset is where the value stands in an entry of a uint64 key.
func (c *Codec) valueOffset() int {
	if c.Blocks {
		return 9
	}
	return 8
}

// ValueAt returns where the value or the reference stands in an entry of a key of n bytes.
func (c *Codec) ValueAt(n int) int { return c.EntryBytes(n, 0) }

// InBlock reports whether a value of n bytes lies in a block.
func (c *Codec) InBlock(n int) bool { return n > c.Inline }

// HasReference reports whether entry e holds a reference.
func (c *Codec) HasReference(e []byte) bool {
	switch {
	case !c.Blocks:
		return false
	case c.Uint64:
		return e[8] == inBlock
	}
	return binary.LittleEndian.Uint16(e)&flagReference != 0
}

// HasReferenceIn is HasReference for the first 16 bytes of an entry, as two words.
func (c *Codec) HasReferenceIn(first, second uint64) bool {
	switch {
	case !c.Blocks:
		return false
	case c.Uint64:
		return byte(second) == inBlock
	}
	return first&flagReference != 0
}

// PutEntry encodes a pair into dst, which must have room for it, and returns the entry.
func (c *Codec) PutEntry(dst, key, value []byte) []byte {
	e := dst[:c.EntryBytes(len(key), len(value))]
	if !c.Uint64 {
		binary.LittleEndian.PutUint16(e, uint16(len(key)))
		copy(e[2:], key)
		copy(e[2+len(key):], value)
		return e
	}
	copy(e, key)
	at := 8
	if c.Blocks {
		e[8], at = inPlace, 9
	}
	copy(e[at:], value)
	return e
}

// PutReference is PutEntry with a reference, of ReferenceBytes, for the value.
func (c *Codec) PutReference(dst, key, reference []byte) []byte {
	e := c.PutEntry(dst, key, reference)
	if c.Uint64 {
		e[8] = inBlock
	} else {
		e[1] |= flagReference >> 8
	}
	return e
}

// Pair decodes an entry. The value is what stands in its place, so it can be a reference. Both are
// parts of e. ok is false if e, which may be any bytes, is no entry.
func (c *Codec) Pair(e []byte) (key, value []byte, ok bool) {
	if c.Uint64 {
		if at := c.valueOffset(); len(e) >= at {
			return e[:8], e[at:], true
		}
		return nil, nil, false
	}
	if len(e) < 2 {
		return nil, nil, false
	}
	n := int(binary.LittleEndian.Uint16(e) &^ flagReference)
	if n > len(e)-2 {
		return nil, nil, false
	}
	return e[2 : 2+n], e[2+n:], true
}

// KeyOf returns the key of an entry that is known to be one.
func (c *Codec) KeyOf(e []byte) []byte {
	key, _, _ := c.Pair(e)
	return key
}

// ValueOf returns the value, or the reference, of an entry that is known to be one.
func (c *Codec) ValueOf(e []byte) []byte {
	_, value, _ := c.Pair(e)
	return value
}

// Fingerprint returns 8 bits of a key, by which a lookup passes over most other slots.
func (c *Codec) Fingerprint(key []byte) byte {
	if c.Uint64 {
		return byte(binary.LittleEndian.Uint64(key) * 0x9E3779B97F4A7C15 >> 56)
	}
	return byte(crc.Sum(uint32(len(key)), key) >> 24)
}

// CheckPair refuses keys and values that do not fit: ErrKeyTooLong, ErrValueTooLong.
func (c *Codec) CheckPair(key, value []byte) error {
	if len(value) > c.MaxValue {
		return fmt.Errorf("value of %d bytes, at most %d: %w",
			len(value), c.MaxValue, index.ErrValueTooLong)
	}
	return c.CheckKey(key)
}

// CheckKey refuses keys whose length does not fit: ErrKeyTooLong.
func (c *Codec) CheckKey(key []byte) error {
	if c.Uint64 {
		if len(key) != 8 {
			return fmt.Errorf("key of %d bytes, uint64 keys have 8: %w", len(key), index.ErrKeyTooLong)
		}
		return nil
	}
	if len(key) > c.MaxKey {
		return fmt.Errorf("key of %d bytes, at most %d: %w", len(key), c.MaxKey, index.ErrKeyTooLong)
	}
	return nil
}

// NoHigh returns the high fence of a node without an upper bound. It has no meaning, but the length
// of a fence.
func (c *Codec) NoHigh() []byte {
	if c.Uint64 {
		return make([]byte, 8)
	}
	return nil
}

// Separator returns a short key s with left < s <= right. It is a part of right (suffix
// truncation), and can be a key of the index.
func (c *Codec) Separator(left, right []byte) []byte {
	if c.Uint64 {
		return right
	}
	return right[:min(len(right), CommonPrefix(left, right)+1)]
}

// CommonPrefix returns how many bytes a and b have in common.
func CommonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// PrefixOf returns the first 8 bytes of a key as a number, so that most comparisons are of numbers.
// Keys of different prefixes compare as these. Equal prefixes say nothing, unless keys are uint64.
func PrefixOf(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var p uint64
	for i, c := range key {
		p |= uint64(c) << (56 - 8*i)
	}
	return p
}

// Below reports whether a < b.
func Below(a, b []byte) bool { return bytes.Compare(a, b) < 0 }
