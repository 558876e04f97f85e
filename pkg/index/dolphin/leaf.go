package dolphin

import (
	"bytes"
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

// A leaf has the pairs of a range of keys, from min on and below max, which stays as it is while
// the leaf lives. It is written as a whole before anybody knows it:
//
//	offset  size  field
//	0       10    version (random), CRC over bytes 8 to 24, kind 200, flags: see package unit
//	10      2     length of min, little-endian
//	12      2     length of max; 0xFFFF = there is none, the range goes on to the end of the keys
//	14      2     1 = the address that follows is that of a merged leaf
//	16      8     right half: the leaf from max on that came to be with this one; or the leaf that
//	              this one has the pairs of besides that with min (merge.go); 0 = neither
//	24      4     sum (package sum) of min and max
//	28      4     zero
//	32      8     filler: random, a multiple of 4
//	40      8     forward word
//	48      ...   min, and max, each filled up to a multiple of 8
//	...     ...   records, one behind the other
//	...     size  value words from the end downwards, one for each record, where values are words
//
// All bytes that are in no record and no value are the filler, word by word. But for the forward
// word what lies before the records never changes, until the dead mark is over its first 24 bytes.
//
// The forward word:
//
//	0        the leaf is the truth for its range, and takes changes
//	shut     it is the truth, and its values stay as they are while the holder of its lock word
//	         lives (share.go). Who acquires the lock word, and finds that, replaces it: the holder
//	         before died
//	gone     it was the only leaf, and empty: the index has none
//	merging  it is to be merged with the leaf from max on, and takes no change (merge.go)
//	address  the leaf that has taken its place, with the same min, or, where this one was the
//	         right one of a merge, with a lower one
//
// A record has one key for all the life of the leaf's memory. So what was once found in a record is
// never another key's. A record:
//
//	offset  size  field
//	0       8     state word
//	8       ...   the key, filled up to a multiple of 8
//	...     ...   where values are not words a cell: sum (4), length (2), 1 = a reference (2), and
//	              the value or reference, filled up to a multiple of 8
//
// The state word, little-endian:
//
//	bits   field
//	0-1    state: 0 = no record is here, and none behind; alive, moved or dead
//	2-13   length of the key
//	14-23  where values are words the length of the value, else words of the cell
//	24-63  tag: of the key under the index's secret
//
// Words of one WRITE can become visible in any order, so the tag shows that all of the key is
// there, and a cell's sum that all of that is. A record without its key is not there: it was not
// yet written when the READ began, or its writer died. Nobody was told of it, or has seen it whole.
//
// A key's value changes in its word or cell, or by a record behind the one before, which then is
// moved. So of several records of a key that are alive the last one counts. A cell without its sum
// was READ within a WRITE: the leaf has to be READ again. None stays so, and nobody who holds the
// leaf's lock word finds one (write.go).
const (
	wordBytes = 8

	atMin     = 10
	atMax     = 12
	atMerged  = 14
	atRight   = 16
	headEnd   = unit.DeadBytes
	atSum     = 24
	atFiller  = 32
	atForward = 40
	atBounds  = 48
	noMax     = 1<<16 - 1
	mostKey   = 1<<12 - 1
	mostCell  = 4 << 10
	cellHead  = 8
	cellSum   = 4
	inBlock   = 1

	// forward words that are no addresses
	shut    = 1
	gone    = 2
	merging = 3
)

// Records are in these states.
const (
	empty = iota
	alive
	moved // a later record has the key's value, or is dead
	dead
)

// stateWord is that of a record.
type stateWord uint64

func newState(state, key, room int, tag uint64) stateWord {
	return stateWord(state|key<<2|room<<14)&(1<<24-1) | stateWord(tag<<24)
}

func (w stateWord) state() int  { return int(w & 3) }
func (w stateWord) key() int    { return int(w>>2) & mostKey }
func (w stateWord) room() int   { return int(w>>14) & 1023 }
func (w stateWord) tag() uint64 { return uint64(w >> 24) }

// withState is w with another state.
func (w stateWord) withState(state int) stateWord { return w&^3 | stateWord(state) }

// tagOf is the tag of a key.
func (l *layout) tagOf(key []byte) uint64 { return siphash.Sum(l.secret, key) & (1<<40 - 1) }

// recordBytes is how long the record of w is.
func (l *layout) recordBytes(w stateWord) int {
	n := wordBytes + padded(w.key())
	if !l.words {
		n += w.room() * wordBytes
	}
	return n
}

// headBytes is where the records of a leaf with such bounds begin.
func headBytes(low, high int) int { return atBounds + padded(low) + padded(high) }

// leaf is a leaf that was READ, or is made, as far as b has it.
type leaf struct {
	lay       *layout
	b         []byte
	at        pool.Addr
	low, high []byte
	endless   bool      // there is no high
	right     pool.Addr // half; Nil = there is none
	merged    pool.Addr // Nil = there is none
	filler    uint64
	records   int // where they begin
}

func (l *leaf) word(at int) uint64       { return binary.LittleEndian.Uint64(l.b[at:]) }
func (l *leaf) setWord(at int, w uint64) { binary.LittleEndian.PutUint64(l.b[at:], w) }

// forward is the forward word.
func (l *leaf) forward() uint64 { return l.word(atForward) }

// isTruth reports whether l is the truth for its range.
func (l *leaf) isTruth() bool {
	fw := l.forward()
	return fw == 0 || fw == shut || fw == merging && !l.endless
}

// opensHead makes l what the first bytes of b, READ from a, say. false: they are no leaf's, or its
// dead mark's.
func (l *leaf) opensHead(b []byte, a pool.Addr) bool {
	l.b, l.at = b, a
	return b[unit.AtKind] == art.KindLeaf && b[unit.AtFlags] == unit.Node && unit.Verify(b, headEnd, a, unit.Version(b))
}

// open makes l the leaf in b, READ from a. false: it is none that verifies, so it is out.
func (l *leaf) open(b []byte, a pool.Addr) bool {
	if !l.opensHead(b, a) {
		return false
	}
	low, high := int(binary.LittleEndian.Uint16(b[atMin:])), int(binary.LittleEndian.Uint16(b[atMax:]))
	if l.endless = high == noMax; l.endless {
		high = 0
	}
	if low > l.lay.MaxKey || high > l.lay.MaxKey {
		return false
	}
	l.records = headBytes(low, high)
	l.low, l.high = b[atBounds:atBounds+low], b[atBounds+padded(low):][:high]
	l.right, l.merged, l.filler = pool.Addr(l.word(atRight)), pool.Nil, l.word(atFiller)
	if b[atMerged] == 1 {
		l.right, l.merged = pool.Nil, l.right
	}
	return l.check() == binary.LittleEndian.Uint32(b[atSum:])
}

// check is the sum of the bounds.
func (l *leaf) check() uint32 {
	return l.lay.Sums.Of(unit.Seed(l.at, unit.Version(l.b)), l.b[atBounds:l.records])
}

// build makes l an empty leaf in b, which is to lie at a. high nil = it has no upper bound.
func (l *leaf) build(b []byte, a pool.Addr, version uint32, filler uint64, low, high []byte, right, merged pool.Addr) {
	b = b[:l.lay.size]
	l.b, l.at, l.filler, l.right, l.merged, l.endless = b, a, filler&^3, right, merged, high == nil
	l.records = headBytes(len(low), len(high))
	clear(b[:l.records])
	binary.LittleEndian.PutUint32(b[unit.AtVersion:], version)
	b[unit.AtKind], b[unit.AtFlags] = art.KindLeaf, unit.Node
	binary.LittleEndian.PutUint16(b[atMin:], uint16(len(low)))
	binary.LittleEndian.PutUint16(b[atMax:], uint16(len(high)))
	if l.endless {
		binary.LittleEndian.PutUint16(b[atMax:], noMax)
	}
	l.setWord(atRight, uint64(right))
	if merged != pool.Nil {
		b[atMerged] = 1
		l.setWord(atRight, uint64(merged))
	}
	unit.Seal(b, headEnd, a, version)
	l.setWord(atFiller, l.filler)
	l.low, l.high = b[atBounds:atBounds+len(low)], b[atBounds+padded(len(low)):][:len(high)]
	copy(l.low, low)
	copy(l.high, high)
	binary.LittleEndian.PutUint32(b[atSum:], l.check())
	for at := l.records; at < len(b); at += wordBytes {
		l.setWord(at, l.filler)
	}
}

// below reports whether key lies before the range of l; strict: whether all keys below key do.
func (l *leaf) below(key []byte, strict bool) bool {
	n := bytes.Compare(key, l.low)
	return n < 0 || strict && n == 0
}

// above reports whether key lies behind the range of l; strict: whether some key below key does.
func (l *leaf) above(key []byte, strict bool) bool {
	n := bytes.Compare(key, l.high)
	return !l.endless && (n > 0 || !strict && n == 0)
}

// cursor is a place in the records of a leaf: that of number n, or the end of them.
type cursor struct{ at, n int }

// first is the place of the first record.
func (l *leaf) first() cursor { return cursor{at: l.records} }

// get is the state word of the record at c. ok is false where there is none. damaged: what is there
// is none that a client writes.
func (l *leaf) get(c cursor) (w stateWord, ok, damaged bool) {
	limit := l.limit(c.n)
	if c.at+wordBytes > limit {
		return 0, false, false
	}
	w = stateWord(l.word(c.at))
	if w.state() == empty {
		return 0, false, uint64(w) != l.filler
	}
	if w.key() > l.lay.MaxKey || c.at+l.lay.recordBytes(w) > limit || l.lay.words && w.room() > wordBytes || !l.lay.words && w.room() < cellHead/wordBytes {
		return 0, false, true
	}
	return w, true, false
}

// limit is where record n ends at the latest.
func (l *leaf) limit(n int) int {
	if l.lay.words {
		return l.lay.size - wordBytes*(n+1)
	}
	return l.lay.size
}

// next is the place behind the record of w at c.
func (l *leaf) next(c cursor, w stateWord) cursor {
	return cursor{c.at + l.lay.recordBytes(w), c.n + 1}
}

// cellAt is where the cell of the record of w at c lies.
func (l *leaf) cellAt(c cursor, w stateWord) int { return c.at + wordBytes + padded(w.key()) }

// key is that of the record of w at c.
func (l *leaf) key(c cursor, w stateWord) []byte { return l.b[c.at+wordBytes:][:w.key()] }

// valueWord is where the value word of record n lies.
func (l *leaf) valueWord(n int) int { return l.lay.size - wordBytes*(n+1) }

// cell is that of the record of w at c.
func (l *leaf) cell(c cursor, w stateWord) []byte {
	return l.b[l.cellAt(c, w):][:w.room()*wordBytes]
}

// found is what a leaf says of a key.
type found struct {
	cursor
	w  stateWord
	is bool // there is a record that is alive
	// the leaf has to be READ again: a later record than this one is alive by now, or its cell is
	// being WRITTEN
	again bool
	end   cursor // behind the last record
}

// find looks for key, of a tag. damaged: a record is none that a client writes.
func (l *leaf) find(key []byte, tag uint64) (f found, damaged bool) {
	c := l.first()
	for {
		w, ok, damaged := l.get(c)
		if !ok {
			f.end = c
			return f, damaged
		}
		if w.tag() == tag && bytes.Equal(l.key(c, w), key) {
			f.cursor, f.w = c, w
			f.is, f.again = l.counts(c, w)
		}
		c = l.next(c, w)
	}
}

// value is that of the record of w at c: its bytes in the leaf, or a reference. ok is false if they
// were READ before they were written.
func (l *leaf) value(c cursor, w stateWord) (v []byte, long, ok bool) {
	if l.lay.words {
		at := l.valueWord(c.n)
		return l.b[at:][:w.room()], false, l.word(at) != l.filler
	}
	cell := l.cell(c, w)
	n := int(binary.LittleEndian.Uint16(cell[cellSum:]))
	if n > len(cell)-cellHead || binary.LittleEndian.Uint32(cell) != l.cellCheck(c, cell[cellSum:cellHead+n]) {
		return nil, false, false
	}
	return cell[cellHead : cellHead+n], binary.LittleEndian.Uint16(cell[cellSum+2:]) == inBlock, true
}

// counts reports whether the record of w at c, the last one of its key, is alive as a whole. again:
// the leaf has to be READ again for that. A record is moved only when the next one is there, and a
// cell comes to rest: another READ sees that.
func (l *leaf) counts(c cursor, w stateWord) (is, again bool) {
	is = w.state() == alive
	if is && !l.lay.words {
		_, _, is = l.value(c, w)
	}
	return is, !is && w.state() != dead
}

// cellCheck is the sum of the cell of the record at c.
func (l *leaf) cellCheck(c cursor, content []byte) uint32 {
	return l.lay.Sums.Of(unit.SlotSeed(unit.Seed(l.at, unit.Version(l.b)), c.at), content)
}

// recordSize is what a record takes, with its value, where n bytes of a value or reference are in
// it.
func (l *layout) recordSize(key, n int) int {
	if l.words {
		return wordBytes + padded(key) + wordBytes
	}
	return wordBytes + padded(key) + padded(cellHead+n)
}

// hasRoom reports whether records that need so many bytes have room from c on, the end of the
// records.
func (l *leaf) hasRoom(c cursor, needs int) bool {
	if l.lay.words {
		needs -= wordBytes // limit leaves room for one value
	}
	return c.at+needs <= l.limit(c.n)
}

// put makes a record that is alive at c, where it fits, and returns where the next one goes.
func (l *leaf) put(c cursor, key []byte, tag uint64, v []byte, long bool) (w stateWord, next cursor) {
	room := len(v)
	if !l.lay.words {
		room = padded(cellHead+len(v)) / wordBytes
	}
	w = newState(alive, len(key), room, tag)
	l.setWord(c.at, uint64(w))
	k := l.b[c.at+wordBytes:][:padded(len(key))]
	clear(k[copy(k, key):])
	if l.lay.words {
		l.putWord(c.n, v)
		return w, l.next(c, w)
	}
	l.putCell(c, w, v, long)
	return w, l.next(c, w)
}

// putCell makes the cell of the record of w at c, which has room for it.
func (l *leaf) putCell(c cursor, w stateWord, v []byte, long bool) {
	cell := l.cell(c, w)
	clear(cell)
	binary.LittleEndian.PutUint16(cell[cellSum:], uint16(len(v)))
	if long {
		binary.LittleEndian.PutUint16(cell[cellSum+2:], inBlock)
	}
	copy(cell[cellHead:], v)
	binary.LittleEndian.PutUint32(cell, l.cellCheck(c, cell[cellSum:cellHead+len(v)]))
}

// putWord makes the value word of record n.
func (l *leaf) putWord(n int, v []byte) {
	b := l.b[l.valueWord(n):][:wordBytes]
	clear(b[copy(b, v):])
}
