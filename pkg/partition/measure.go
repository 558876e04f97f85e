package partition

import (
	"bytes"
	"encoding/binary"
	"sort"
)

// A measure weighs ranges of keys and finds where to cut them. Planning knows load only through it.
type measure interface {
	// weight of the keys from start to, not including, end; an empty end is the upper end of the key space. Weights add up:
	// weight(a, b) + weight(b, c) = weight(a, c). All keys together weigh less than 1<<63 + 1.
	weight(start, end []byte) uint64

	// cut is a key strictly within start and end below which there is w of the range's weight, as nearly as the measure can
	// say; nil if there is no such key.
	cut(start, end []byte, w uint64) []byte
}

// width weighs by the share of the key space: the first 63 bits of a key as a number. Printable keys fill a small part of
// that space.
type width struct{ keys KeyType }

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

func (w width) cut(start, end []byte, n uint64) []byte {
	lo, hi := w.ends(start, end)
	if n == 0 || n >= hi-lo {
		return nil
	}
	key := w.key(lo + n)
	if bytes.Compare(start, key) >= 0 || len(end) > 0 && bytes.Compare(key, end) >= 0 {
		return nil
	}
	return key
}

// key is the least key at a position. Uint64 keys have all 8 bytes; others lose their trailing zeros.
func (w width) key(position uint64) []byte {
	key := binary.BigEndian.AppendUint64(nil, position<<1)
	if w.keys == Uint64 {
		return key
	}
	return bytes.TrimRight(key, "\x00")
}

// sampled weighs by how many keys of a sorted sample lie in a range.
type sampled struct{ keys [][]byte }

// below is how many sample keys are less than key.
func (s sampled) below(key []byte) int {
	return sort.Search(len(s.keys), func(i int) bool { return bytes.Compare(s.keys[i], key) >= 0 })
}

func (s sampled) ends(start, end []byte) (lo, hi int) {
	lo, hi = s.below(start), len(s.keys)
	if len(end) > 0 {
		hi = s.below(end)
	}
	return lo, hi
}

func (s sampled) weight(start, end []byte) uint64 {
	lo, hi := s.ends(start, end)
	return uint64(hi - lo)
}

func (s sampled) cut(start, end []byte, n uint64) []byte {
	lo, hi := s.ends(start, end)
	if n == 0 || n >= uint64(hi-lo) {
		return nil
	}
	// Runs of equal keys cannot be cut: the key itself leaves the whole run above the cut.
	key := s.keys[lo+int(n)]
	if bytes.Compare(start, key) >= 0 {
		return nil
	}
	return append([]byte(nil), key...)
}
