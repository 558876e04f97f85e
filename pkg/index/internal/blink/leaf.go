package blink

import (
	"bytes"
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/index/internal/crc"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// A leaf is a header, a directory of slots, and a heap of entries in no order:
//
//	offset            size     field
//	0                 h        header (header.go), level 0, count = n
//	h                 8 n      slot words
//	h+8n              ...      heap, to the end of the node
//
// A slot word is one aligned word, so that it changes at once:
//
//	bits    field
//	32-63   CRC-32C of the entry's bytes, started with the node's address and version and the slot's number (package unit)
//	24-31   fingerprint of the key
//	12-23   offset of the entry in the node, in units of 8 bytes
//	0-11    length of the entry in bytes; 0 = the slot is empty, and so are offset and fingerprint
//
// An entry (layout.go) starts at a multiple of 8.
//
// While a node's version stands, header, number of slots and start of the heap stand too, and a key stays in its slot from insertion
// to deletion. So a slot is an atomic register: a word that verifies under the header's version was published under it, with exactly
// the entry that was read.
const slotBytes = 8

func slotWord(check uint32, fp byte, off, length int) uint64 {
	return uint64(check)<<32 | uint64(fp)<<24 | uint64(off/grain)<<12 | uint64(length)
}

func slotCheck(w uint64) uint32 { return uint32(w >> 32) }
func slotFP(w uint64) byte      { return byte(w >> 24) }
func slotOffset(w uint64) int   { return int(w>>12&0xfff) * grain }
func slotLength(w uint64) int   { return int(w & 0xfff) }

// leaf is a decoded view of a leaf's bytes.
type leaf struct {
	header
	lay  *layout
	addr pool.Addr
	b    []byte
	seed uint32
	heap int // where the heap begins
}

// outcome of looking at the bytes of a node.
type outcome uint8

const (
	absent  outcome = iota // all that had to be looked at verifies, and it is not there
	present                // it is there, and verifies
	torn                   // something does not verify: the bytes are a mixture of moments, or no node
)

// open decodes the header in b, which may be any bytes, and verifies it; false means torn.
func (l *leaf) open(lay *layout, addr pool.Addr, b []byte) bool {
	l.lay, l.addr, l.b = lay, addr, b
	if !l.header.decode(b, lay) || l.level != 0 {
		return false
	}
	l.heap = l.end + slotBytes*l.count
	if l.heap > len(b) {
		return false
	}
	l.seed = unit.Seed(addr, l.version)
	return unit.VerifyFrom(b, l.end, l.seed)
}

// slot is word i of the directory.
func (l *leaf) slot(i int) uint64 { return binary.LittleEndian.Uint64(l.b[l.end+slotBytes*i:]) }

// slotAt is the offset of word i in the node.
func (l *leaf) slotAt(i int) int { return l.end + slotBytes*i }

// entry is where w points; nil if that is nowhere in the heap.
func (l *leaf) entry(w uint64) []byte {
	off, n := slotOffset(w), slotLength(w)
	if off < l.heap || off+n > len(l.b) {
		return nil
	}
	return l.b[off : off+n : off+n]
}

// verified says whether slot i, whose word is w and whose entry e, was published under the version of the header.
func (l *leaf) verified(i int, w uint64, e []byte) bool {
	return slotCheck(w) == crc.Sum(unit.SlotSeed(l.seed, i), e)
}

// empty is the word of slot i when it holds nothing.
func (l *leaf) empty(i int) uint64 { return slotWord(unit.SlotSeed(l.seed, i), 0, 0, 0) }

// find looks for key. present: i is its slot and e its verified entry. absent: every slot verifies and none has the key. torn:
// read the leaf again.
func (l *leaf) find(key []byte, fp byte) (i int, e []byte, o outcome) {
	dir := l.b[l.end:l.heap]
	for i := 0; i < len(dir)/slotBytes; i++ {
		w := binary.LittleEndian.Uint64(dir[slotBytes*i:])
		if slotFP(w) != fp || slotLength(w) == 0 {
			continue
		}
		e := l.entry(w)
		if k, _, ok := l.lay.Pair(e); ok && bytes.Equal(k, key) && l.verified(i, w, e) {
			return i, e, present
		}
	}
	if !l.verifyAll() {
		return 0, nil, torn
	}
	return 0, nil, absent
}

// verifyAll says whether every slot verifies.
func (l *leaf) verifyAll() bool {
	for i := range l.count {
		w := l.slot(i)
		if slotLength(w) == 0 {
			if w != l.empty(i) {
				return false
			}
			continue
		}
		e := l.entry(w)
		if e == nil || !l.verified(i, w, e) {
			return false
		}
	}
	return true
}
