package sortedset

import (
	"bytes"
	"encoding/binary"
	"math"
)

// Prefix is before the keys of all that sets have beside their heads. No user's key begins with it.
const Prefix = "\xff\xffset"

// Parts of keys.
const (
	numberBytes = 6
	stampBytes  = 6
	scoreBytes  = 8
	// before, between and behind the parts of an entry that are always there
	entryBytes = len(Prefix) + numberBytes + 1 + scoreBytes + 2 + stampBytes

	// Overhead is how many bytes the longest key of a member has beside the member.
	Overhead = entryBytes

	isItem  = 'm'
	isEntry = 's'
	isRoot  = 'z'
)

type (
	number [numberBytes]byte
	stamp  [stampBytes]byte
)

// underBytes is how long the begin of the keys of one kind is.
const underBytes = len(Prefix) + numberBytes + 1

// appendUnder appends the begin of the keys of one kind under a number.
func (n number) appendUnder(dst []byte, kind byte) []byte {
	return append(append(append(dst, Prefix...), n[:]...), kind)
}

// kindPrefix is the begin of the keys of one kind under a number.
func (n number) kindPrefix(kind byte) []byte { return n.appendUnder(nil, kind) }

func (n number) item(member []byte) []byte { return append(n.kindPrefix(isItem), member...) }

func (n number) root() []byte { return n.kindPrefix(isRoot) }

// appendEntry appends the key of an entry.
func (n number) appendEntry(dst []byte, score float64, member []byte, of stamp) []byte {
	dst = appendScore(n.appendUnder(dst, isEntry), score)
	dst = appendEscaped(dst, member)
	return append(append(dst, 0, 0), of[:]...)
}

// numberOf is the number of a key that begins with Prefix.
func numberOf(key []byte) (n number, ok bool) {
	if len(key) < len(Prefix)+numberBytes {
		return n, false
	}
	copy(n[:], key[len(Prefix):])
	return n, true
}

// appendScore appends eight bytes that compare as scores do. The two zeros are the same.
func appendScore(dst []byte, score float64) []byte {
	if score == 0 {
		score = 0 // not -0
	}
	bits := math.Float64bits(score)
	if bits>>63 != 0 {
		bits = ^bits
	} else {
		bits |= 1 << 63
	}
	return binary.BigEndian.AppendUint64(dst, bits)
}

// scoreOf is the score in the key of an entry.
func scoreOf(entry []byte) float64 {
	bits := binary.BigEndian.Uint64(entry[underBytes:])
	if bits>>63 != 0 {
		bits &^= 1 << 63
	} else {
		bits = ^bits
	}
	return math.Float64frombits(bits)
}

// appendEscaped appends a member so that two zeros can end it and it compares as the member does: a
// zero byte is followed by 255.
func appendEscaped(dst, member []byte) []byte {
	for _, b := range member {
		if dst = append(dst, b); b == 0 {
			dst = append(dst, 0xff)
		}
	}
	return dst
}

func escapedLen(member []byte) int { return len(member) + bytes.Count(member, []byte{0}) }

// parseEntry takes the key of an entry apart. The member lies in the key if it has no zero byte.
func parseEntry(key []byte) (member []byte, of stamp, ok bool) {
	from := len(Prefix) + numberBytes + 1 + scoreBytes
	end := len(key) - stampBytes - 2
	if end < from || key[end] != 0 || key[end+1] != 0 {
		return nil, of, false
	}
	copy(of[:], key[end+2:])
	if bytes.IndexByte(key[from:end], 0) < 0 {
		return key[from:end:end], of, true
	}
	for i := from; i < end; i++ {
		if member = append(member, key[i]); key[i] == 0 {
			if i++; i >= end || key[i] != 0xff {
				return nil, of, false
			}
		}
	}
	return member, of, true
}

// prefixEnd is the least key above all that begin with this one, which has a byte below 255.
func prefixEnd(prefix []byte) []byte {
	out := bytes.Clone(prefix)
	for i := len(out) - 1; i >= 0; i-- {
		if out[i] != 0xff {
			out[i]++
			return out[:i+1]
		}
	}
	return nil
}

// item is what is known of a member.
//
//	0 settled | score | stamp                                  its entry may have the mark
//	1 settled | score | stamp                                  its entry has no mark
//	2 pending | score | stamp
//	3 pending | score | stamp | former score | former stamp    the former entry has no mark
//	4 pending | score | stamp | former score | former stamp    the former entry may have the mark
type item struct {
	pending, had bool
	marked       bool // the entry that counts may have the mark
	score        float64
	stamp        stamp
	former       float64 // of the settled item before
	formerStamp  stamp
}

const itemBytes = 1 + 2*(scoreBytes+stampBytes)

func (i item) marshal() []byte { return i.appendTo(make([]byte, 0, itemBytes)) }

// appendTo appends the item as it is stored: at most itemBytes.
func (i item) appendTo(dst []byte) []byte {
	form := byte(1)
	switch {
	case i.had && i.marked:
		form = 4
	case i.had:
		form = 3
	case i.pending:
		form = 2
	case i.marked:
		form = 0
	}
	b := binary.BigEndian.AppendUint64(append(dst, form), math.Float64bits(i.score))
	b = append(b, i.stamp[:]...)
	if i.had {
		b = binary.BigEndian.AppendUint64(b, math.Float64bits(i.former))
		b = append(b, i.formerStamp[:]...)
	}
	return b
}

func parseItem(b []byte) (i item, ok bool) {
	const one = 1 + scoreBytes + stampBytes
	if len(b) < one || b[0] > 4 || len(b) != one && b[0] < 3 || len(b) != itemBytes && b[0] >= 3 {
		return i, false
	}
	i.pending, i.had, i.marked = b[0] > 1, b[0] >= 3, b[0] == 0 || b[0] == 4
	i.score = math.Float64frombits(binary.BigEndian.Uint64(b[1:]))
	copy(i.stamp[:], b[1+scoreBytes:])
	if i.had {
		i.former = math.Float64frombits(binary.BigEndian.Uint64(b[one:]))
		copy(i.formerStamp[:], b[one+scoreBytes:])
	}
	return i, true
}

// effective is the settled item of the member as it is: a change that is pending is not made yet.
// The zero item is none.
func (i item) effective() item {
	switch {
	case !i.pending:
		return i
	case i.had:
		return i.undone()
	}
	return item{}
}

// settled is the item when its change is whole.
func (i item) settled() item { return item{score: i.score, stamp: i.stamp} }

// undone is the item of a pending change of a member with a former score when the change is taken
// back.
func (i item) undone() item { return item{score: i.former, stamp: i.formerStamp, marked: i.marked} }

// head is what a set's key has.
type head struct {
	state  byte
	number number
	token  stamp // of closing
}

const (
	isNew     = 'n'
	isMade    = 'm'
	isClosing = 'c'

	headBytes = 1 + numberBytes + stampBytes
)

func (h head) marshal() []byte { return h.appendTo(make([]byte, 0, headBytes)) }

func (h head) appendTo(dst []byte) []byte {
	return append(append(append(dst, h.state), h.number[:]...), h.token[:]...)
}

func parseHead(b []byte) (h head, ok bool) {
	if len(b) != headBytes {
		return h, false
	}
	h.state = b[0]
	copy(h.number[:], b[1:])
	copy(h.token[:], b[1+numberBytes:])
	return h, h.state == isNew || h.state == isMade || h.state == isClosing
}

func (h head) withState(state byte) head { return head{state: state, number: h.number} }
