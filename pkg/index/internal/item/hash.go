package item

import (
	"encoding/binary"
	"math/bits"

	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

// Hash places what is kept of keys in the memory of one client. Users choose keys. If they knew
// where a key lies they could throw others out. So the hash depends on the index's secret. A key
// that is thrown out costs a READ and no more, so it is a fast hash, by products of 128 bits, and
// not SipHash.
type Hash struct{ first, factor uint64 }

const hashFactor = 0x9E3779B97F4A7C15

// HashOf is the hash under a secret; without one it is a hash, too.
func HashOf(secret siphash.Key) Hash {
	return Hash{secret.K0, secret.K1 ^ 0xD6E8FEB86659FD93}
}

// Of is the hash of key.
func (r *Hash) Of(key []byte) uint64 {
	h := r.first ^ uint64(len(key))
	rest := key
	for ; len(rest) >= 8; rest = rest[8:] {
		h = folded(h^binary.LittleEndian.Uint64(rest), r.factor)
	}
	if len(rest) > 0 {
		h = folded(h^Word(rest), r.factor)
	}
	return folded(h, hashFactor)
}

// OfNumber is Of for a key of one word.
func (r *Hash) OfNumber(w uint64) uint64 {
	return folded(folded(r.first^8^w, r.factor), hashFactor)
}

// folded is the two halves of a product in one.
func folded(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

// Word is b, of at most 8 bytes, as a word.
func Word(b []byte) (w uint64) {
	for i, c := range b {
		w |= uint64(c) << (8 * i)
	}
	return w
}
