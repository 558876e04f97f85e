// Package slotted is the leaf of Sherman and DEX (Sherman, section 4.4): a header with fences, a
// directory of slots, and a heap of entries in no order. It has the format and what a client does
// with its bytes. It posts nothing.
//
//	offset  size  field
//	0       h     header (package fence), level 0, count = n
//	h       8 n   slot words
//	h+8n    ...   heap, to the end of the node
//
// A slot word is one aligned word, so that it changes at once:
//
//	bits    field
//	32-63   sum of the entry (package sum), started with the node's address and version and the
//	        slot's number (package unit)
//	24-31   fingerprint of the key
//	12-23   offset of the entry in the node, in units of 8 bytes
//	0-11    length of the entry in bytes; 0 = the slot is empty, and so are offset and fingerprint
//
// An entry (package item) starts at a multiple of 8.
//
// While a node's version stands, header, number of slots and start of the heap stand too, and a key
// stays in its slot from insertion to deletion. So a slot is an atomic register: a word that
// verifies under the header's version was published under it, with exactly the entry that was read.
package slotted

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/pool"
)

// SlotBytes is the size of a slot word.
const SlotBytes = 8

func slotWord(check uint32, fp byte, off, length int) uint64 {
	return uint64(check)<<32 | uint64(fp)<<24 | uint64(off/fence.Grain)<<12 | uint64(length)
}

func slotCheck(w uint64) uint32 { return uint32(w >> 32) }
func slotFP(w uint64) byte      { return byte(w >> 24) }

// SlotOffset and SlotLength return where the entry of a slot word is, and how long. Length 0: the
// slot is empty.
func SlotOffset(w uint64) int { return int(w>>12&0xfff) * fence.Grain }
func SlotLength(w uint64) int { return int(w & 0xfff) }

// Leaf is a decoded view of a leaf's bytes.
type Leaf struct {
	fence.Header
	Lay   *fence.Layout
	Addr  pool.Addr
	Bytes []byte
	seed  uint32
	heap  int // where the heap begins
}

// Outcome of looking at the bytes of a node.
type Outcome uint8

const (
	Absent  Outcome = iota // all that had to be looked at verifies, and it is not there
	Present                // it is there, and verifies
	// something does not verify: the bytes are a mixture of moments, or no node
	Torn
)

// Open decodes the header in b, which may be any bytes, and verifies it. False means torn.
func (l *Leaf) Open(lay *fence.Layout, addr pool.Addr, b []byte) bool {
	l.Lay, l.Addr, l.Bytes = lay, addr, b
	if !l.Header.Decode(b, lay) || l.Level != 0 {
		return false
	}
	l.heap = l.End + SlotBytes*l.Count
	if l.heap > len(b) {
		return false
	}
	l.seed = unit.Seed(addr, l.Version)
	return lay.Verify(b, l.End, addr, l.Version)
}

// SlotWord returns word i of the directory.
func (l *Leaf) SlotWord(i int) uint64 { return binary.LittleEndian.Uint64(l.Bytes[l.End+SlotBytes*i:]) }

// SlotAt returns the offset of word i in the node.
func (l *Leaf) SlotAt(i int) int { return l.End + SlotBytes*i }

// EntryAt returns the entry that w points to; nil if that is nowhere in the heap.
func (l *Leaf) EntryAt(w uint64) []byte {
	off, n := SlotOffset(w), SlotLength(w)
	if off < l.heap || off+n > len(l.Bytes) {
		return nil
	}
	return l.Bytes[off : off+n : off+n]
}

// verified reports whether slot i, whose word is w and whose entry e, was published under the
// version of the header.
func (l *Leaf) verified(i int, w uint64, e []byte) bool {
	return slotCheck(w) == l.Lay.Sums.Of(unit.SlotSeed(l.seed, i), e)
}

// empty returns the word of slot i when it holds nothing.
func (l *Leaf) empty(i int) uint64 { return SlotOf(l.Lay, l.seed, i, 0, 0, nil) }

// Find looks for key. Present: i is its slot and e its verified entry. Absent: every slot verifies
// and none has the key. Torn: READ the leaf again.
func (l *Leaf) Find(key []byte, fp byte) (i int, e []byte, o Outcome) {
	dir := l.Bytes[l.End:l.heap]
	for i := 0; i < len(dir)/SlotBytes; i++ {
		w := binary.LittleEndian.Uint64(dir[SlotBytes*i:])
		if slotFP(w) != fp || SlotLength(w) == 0 {
			continue
		}
		e := l.EntryAt(w)
		if k, _, ok := l.Lay.Pair(e); ok && bytes.Equal(k, key) && l.verified(i, w, e) {
			return i, e, Present
		}
	}
	if !l.Verify() {
		return 0, nil, Torn
	}
	return 0, nil, Absent
}

// Verify reports whether every slot verifies.
func (l *Leaf) Verify() bool { return l.Mixed(unknown) }

func unknown(int, uint64, []byte) bool { return false }

// Mixed calls f for each slot that does not verify, with its word and key, if all of those can lead
// to entries that others of the same key were partly written over: there is an entry, its key has
// the fingerprint of the slot, and lies in the leaf's range. False: one is not so, or f said no. f
// may change the entry, and the slot.
func (l *Leaf) Mixed(f func(i int, w uint64, key []byte) bool) bool {
	for i := range l.Count {
		w := l.SlotWord(i)
		if SlotLength(w) == 0 {
			if w != l.empty(i) {
				return false
			}
			continue
		}
		e := l.EntryAt(w)
		if e == nil {
			return false
		}
		if l.verified(i, w, e) {
			continue
		}
		key, _, ok := l.Lay.Pair(e)
		if !ok || slotFP(w) != l.Lay.Fingerprint(key) || l.Below(key) || l.Above(key) || !f(i, w, key) {
			return false
		}
	}
	return true
}

// Is reports whether b is the leaf at a, verified as a whole, and its range holds key; l is it
// then.
func (l *Leaf) Is(lay *fence.Layout, a pool.Addr, b, key []byte) bool {
	return l.Open(lay, a, b) && !l.Below(key) && !l.Above(key) && l.Verify()
}

// Answers reports whether b is the leaf at a, its range holds key, and EntryOf is right about key:
// a slot with key verifies, or all slots do, and none has it. l is the leaf then.
func (l *Leaf) Answers(lay *fence.Layout, a pool.Addr, b, key []byte) bool {
	if !l.Open(lay, a, b) || l.Below(key) || l.Above(key) {
		return false
	}
	_, _, o := l.Find(key, lay.Fingerprint(key))
	return o != Torn
}

// EntryOf returns the entry of key in a leaf that is verified as a whole, or that Answers.
func (l *Leaf) EntryOf(key []byte) (e []byte, ok bool) {
	_, e, o := l.Find(key, l.Lay.Fingerprint(key))
	return e, o == Present
}

// SlotOf returns the word of slot i of a leaf with that seed, for entry e at offset off. An empty
// entry makes that of an empty slot.
func SlotOf(l *fence.Layout, seed uint32, i int, fp byte, off int, e []byte) uint64 {
	if len(e) == 0 {
		return slotWord(unit.SlotSeed(seed, i), 0, 0, 0)
	}
	return slotWord(l.Sums.Of(unit.SlotSeed(seed, i), e), fp, off, len(e))
}

// Slot takes a slot word apart.
func Slot(w uint64) (fp byte, off, length int) { return slotFP(w), SlotOffset(w), SlotLength(w) }

// Empties returns nil if the leaf is the whole of an index, and holds nothing; else ErrNotEmpty.
func (l *Leaf) Empties() error {
	if !l.Rightmost || !bytes.Equal(l.Low, l.Lay.Bottom) {
		return fmt.Errorf("it has more than one leaf: %w", index.ErrNotEmpty)
	}
	for i := range l.Count {
		if w := l.SlotWord(i); SlotLength(w) != 0 {
			key, _, _ := l.Lay.Pair(l.EntryAt(w))
			return fmt.Errorf("it has key %s: %w", keyrange.Quote(key), index.ErrNotEmpty)
		}
	}
	return nil
}
