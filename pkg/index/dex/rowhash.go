package dex

import (
	"encoding/binary"
	"math/bits"

	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

// rowHash places entries by their keys. Users choose keys. If they knew where entries lie they
// could throw those of others out. So the hash depends on the index's secret. An entry that is
// thrown out costs a READ and no more, so it is a fast hash, by products of 128 bits, and not
// SipHash.
type rowHash struct{ first, factor uint64 }

const rowFactor = 0x9E3779B97F4A7C15

// rowHashOf is the hash under a secret; without one it is a hash, too.
func rowHashOf(secret siphash.Key) rowHash {
	return rowHash{secret.K0, secret.K1 ^ 0xD6E8FEB86659FD93}
}

// of is the hash of key.
func (r *rowHash) of(key []byte) uint64 {
	h := r.first ^ uint64(len(key))
	rest := key
	for ; len(rest) >= 8; rest = rest[8:] {
		h = folded(h^binary.LittleEndian.Uint64(rest), r.factor)
	}
	if len(rest) > 0 {
		h = folded(h^tail(rest), r.factor)
	}
	return folded(h, rowFactor)
}

// ofNumber is of for a key of one word.
func (r *rowHash) ofNumber(w uint64) uint64 {
	return folded(folded(r.first^8^w, r.factor), rowFactor)
}

// folded is the two halves of a product in one.
func folded(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

// tail is b, of less than 8 bytes, as a word.
func tail(b []byte) (w uint64) {
	for i, c := range b {
		w |= uint64(c) << (8 * i)
	}
	return w
}
