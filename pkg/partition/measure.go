package partition

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sort"
)

// measure weighs ranges of keys and finds where to cut them. Plans see load only through it.
type measure interface {
	// weight returns the weight of the keys from start up to end, which is exclusive; an empty end
	// is the upper end of the key space. Weights add up: weight(a, b) + weight(b, c) = weight(a,
	// c). All keys together weigh less than 1<<63 + 1.
	weight(start, end []byte) uint64

	// cut returns a key strictly between start and end with w of the range's weight below it, or,
	// with high, above it: exactly w, or the next lower possible weight; a little more counts as w.
	// It returns nil if there is no such key.
	cut(start, end []byte, w uint64, high bool) []byte
}

// width weighs by the share of the key space: the first 63 bits of a key as a number. Printable
// keys fill a small part of that space.
type width struct {
	keys    KeyType
	longest int // bytes of a key; 0 = not known
}

const wholeWidth = 1 << 63

func (width) position(key []byte) uint64 {
	var word [8]byte
	copy(word[:], key)
	return binary.BigEndian.Uint64(word[:]) >> 1
}

func (w width) ends(start, end []byte) (lo, hi uint64) {
	lo, hi = w.position(start), wholeWidth
	if len(end) > 0 {
		hi = w.position(end)
	}
	return lo, hi
}

func (w width) weight(start, end []byte) uint64 {
	lo, hi := w.ends(start, end)
	return hi - lo
}

func (w width) cut(start, end []byte, n uint64, high bool) []byte {
	lo, hi := w.ends(start, end)
	if n == 0 || n >= hi-lo {
		return nil
	}
	at := lo + n
	if high {
		at = hi - n
	}
	return within(start, end, w.key(at))
}

// key returns the least key at a position. Uint64 keys have all 8 bytes. Others lose trailing
// zeros, and bytes beyond the longest key.
func (w width) key(position uint64) []byte {
	key := binary.BigEndian.AppendUint64(nil, position<<1)
	if w.keys == Uint64 {
		return key
	}
	if w.longest > 0 {
		key = key[:min(len(key), w.longest)]
	}
	return bytes.TrimRight(key, "\x00")
}

// within returns key if it lies strictly between start and end, else nil.
func within(start, end, key []byte) []byte {
	if bytes.Compare(start, key) >= 0 || len(end) > 0 && bytes.Compare(key, end) >= 0 {
		return nil
	}
	return key
}

// loaded weighs a range by its load, and a little by its width, so that ranges without requests are
// divided too, and every server gets some. Where load decides it cuts only at keys of the sample.
type loaded struct {
	width width
	keys  [][]byte // ascending, each once
	below []uint64 // of each: the load of all keys less than it; and one more, the load of all
}

// Weights of loaded: the whole load, the whole width, and the weight below which no other cut is
// sought.
const (
	wholeLoad  = 1 << 62
	widthShift = 6
	fineWeight = wholeLoad >> 8
)

// newLoaded returns a measure of keys and rates; nil if the rates sum up to nothing.
func newLoaded(w width, load []KeyLoad) measure {
	load = slices.Clone(load)
	slices.SortStableFunc(load, func(a, b KeyLoad) int { return bytes.Compare(a.Key, b.Key) })
	total := 0.0
	for _, k := range load {
		total += k.Rate
	}
	if !(total > 0) {
		return nil
	}
	l := loaded{width: w}
	sum := 0.0
	for _, k := range load {
		if n := len(l.keys); n == 0 || !bytes.Equal(l.keys[n-1], k.Key) {
			l.keys, l.below = append(l.keys, k.Key), append(l.below, uint64(sum/total*wholeLoad))
		}
		sum += k.Rate
	}
	l.below = append(l.below, wholeLoad)
	for i := range l.below { // rounding may have exceeded it
		l.below[i] = min(l.below[i], wholeLoad)
	}
	return l
}

// before returns how many keys of the sample are less than key.
func (l loaded) before(key []byte) int {
	return sort.Search(len(l.keys), func(i int) bool { return bytes.Compare(l.keys[i], key) >= 0 })
}

// at returns the weight of all keys less than key.
func (l loaded) at(key []byte) uint64 {
	return l.below[l.before(key)] + l.width.position(key)>>widthShift
}

// after returns the weight of all keys up to and including key.
func (l loaded) after(key []byte) uint64 {
	i := l.before(key)
	if i < len(l.keys) && bytes.Equal(l.keys[i], key) {
		i++
	}
	return l.below[i] + l.width.position(key)>>widthShift
}

func (l loaded) ends(start, end []byte) (lo, hi uint64) {
	lo, hi = l.at(start), wholeLoad+wholeWidth>>widthShift
	if len(end) > 0 {
		hi = l.at(end)
	}
	return lo, hi
}

func (l loaded) weight(start, end []byte) uint64 {
	lo, hi := l.ends(start, end)
	return hi - lo
}

func (l loaded) cut(start, end []byte, w uint64, high bool) []byte {
	lo, hi := l.ends(start, end)
	if w == 0 || w >= hi-lo {
		return nil
	}
	target := lo + w
	if high {
		target = hi - w
	}
	first, last := l.before(start), len(l.keys)
	if first < last && bytes.Equal(l.keys[first], start) {
		first++
	}
	if len(end) > 0 {
		last = l.before(end)
	}
	i := first + sort.Search(last-first, func(i int) bool { return l.at(l.keys[first+i]) >= target })
	prev := start // the sample's keys on both sides of the target, if any are in between
	var below, above []byte
	if i > first {
		below = l.keys[i-1]
		prev = below
	}
	if i < last {
		above = l.keys[i]
	}
	switch {
	case above != nil && l.at(above)-target <= fineWeight && (below == nil || l.at(above)-target <= target-l.at(below)):
		return bytes.Clone(above)
	case below != nil && target-l.at(below) <= fineWeight:
		return bytes.Clone(below)
	case above == nil && l.after(prev) > lo && hi-target <= fineWeight:
		return nil // all load is below the target, and the rest is not worth a boundary
	}
	if after := l.after(prev); target > after { // between two sampled keys
		if key := within(prev, end, l.width.key(l.width.position(prev)+(target-after)<<widthShift)); key != nil && (above == nil || bytes.Compare(key, above) < 0) {
			return key
		}
	}
	if high {
		return bytes.Clone(above)
	}
	return bytes.Clone(below)
}
