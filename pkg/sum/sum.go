// Package sum is the checksum of what users have a choice in and is replaced in place: a universal
// hash of 32 bits under a secret, that of an index for its entries and nodes, or that of a redo log
// for its batches. A reader learns from it whether a READ beside a WRITE, or behind one that was
// cut short, got a mixture of two contents.
//
// Users choose contents, and see no sums. Any two different contents that are chosen without
// knowledge of the key have one sum with a probability of at most 2^-32 + 2^-64 over all keys. So a
// mixture of chosen contents verifies as seldom as a mixture of any others. A CRC has no such
// bound: its collisions are the same in every index, and easily computed. A sum is no signature: a
// client that sees sums can compute others.
//
// # The hash
//
// A content has one part, or three. A part is divided into blocks of 2 KiB and one that is shorter,
// and may be empty. NH hashes a block to 128 bits (Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC,
// CRYPTO 1999; here with words of 64 bits): the sum of (a+k)(b+l) modulo 2^128 over the block's
// pairs of words a and b, where k and l are words of the key, and a+k and b+l are modulo 2^64. Two
// different blocks of one length have one hash with a probability of at most 2^-64.
//
// The four quarters of these 128 bits, and the length of the block, are five numbers below 2^32 for
// each block; those of an empty block are 0. Each number is multiplied by a word of the key, and
// the products are added to one more word, modulo 2^64. The upper half is the sum (multilinear
// hashing; Lemire, Kaser: Strongly universal string hashing is fast, The Computer Journal 57,
// 2014). The sums of two different lists of numbers differ by each value with a probability of
// 2^-32.
//
// All blocks share the words for NH, and each number has a word of its own. That is enough.
// Contents that are not divided alike have another length in their lists. Others have the same
// lists only if each block has the same hash, which is at most as likely as that one block has it
// where they differ. The bounds are those of random words; the words come from SipHash.
//
// A start value is added without carries. So the same content never has the same sum with two
// starts. For different contents the bound holds whatever their starts are, because it is the same
// for each difference of their sums.
package sum

import (
	"encoding/binary"
	"math/bits"

	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

const (
	// Most is how many bytes a content has at most.
	Most = 64 << 10

	blockBytes = 2 << 10
	blockWords = blockBytes / 8
	mostBlocks = Most/blockBytes + 3
)

// Key is the key of an index's sums, or of a log's. It does not change while it is in use.
type Key struct {
	first uint64
	words [blockWords]uint64 // of NH
	folds [mostBlocks]fold
}

// fold has the words that a block's numbers are multiplied by.
type fold struct{ low0, low1, high0, high1, length uint64 }

// NewKey returns the key that follows from a secret.
func NewKey(secret siphash.Key) *Key {
	k := new(Key)
	k.Expand(secret)
	return k
}

// Expand makes k the key that follows from a secret. It is a part of the format: word i of
// the key is the hash of i, little-endian, under the secret. Those of blocks come last, so no sum
// depends on Most. CHIME hashes keys of users under the secret, so a constant makes this another
// one.
func (k *Key) Expand(secret siphash.Key) {
	secret.K1 ^= 0xC6A4A7935BD1E995
	var counter [8]byte
	i := uint64(0)
	next := func() uint64 {
		binary.LittleEndian.PutUint64(counter[:], i)
		i++
		return siphash.Sum(secret, counter[:])
	}
	k.first = next()
	for i := range k.words {
		k.words[i] = next()
	}
	for i := range k.folds {
		k.folds[i] = fold{low0: next(), low1: next(), high0: next(), high1: next(), length: next()}
	}
}

// Of returns the sum of a content of one part, with a start. It allocates nothing.
func (k *Key) Of(start uint32, p []byte) uint32 {
	if n := len(p); n >= 8 && n <= 32 { // as block has it: most entries are as short
		second := n - 8
		if n > 16 {
			second = 8
		}
		high, low := bits.Mul64(word(p)+k.words[0], word(p[second:])+k.words[1])
		if n > 16 {
			low, high = add(low, high, word(p[n-16:])+k.words[2], word(p[n-8:])+k.words[3])
		}
		return start ^ uint32((k.first+k.folds[0].of(low, high, n))>>32)
	}
	if len(p) < blockBytes {
		return start ^ uint32((k.first+k.block(&k.folds[0], p))>>32)
	}
	h, _ := k.part(k.first, 0, p)
	return start ^ uint32(h>>32)
}

// OfParts is Of for a content of three parts. Contents with other parts are different ones.
func (k *Key) OfParts(start uint32, a, b, c []byte) uint32 {
	h, n := k.part(k.first, 0, a)
	h, n = k.part(h, n, b)
	h, _ = k.part(h, n, c)
	return start ^ uint32(h>>32)
}

// part adds the blocks of a part to h, from block n on, and returns the number of the next one.
func (k *Key) part(h uint64, n int, p []byte) (uint64, int) {
	for ; len(p) >= blockBytes; n++ {
		h += k.block(&k.folds[n], p[:blockBytes])
		p = p[blockBytes:]
	}
	return h + k.block(&k.folds[n], p), n + 1
}

// block returns what the numbers of a block add.
//
// The last two words of a block are its last 16 bytes, some of which may be in the words before,
// too. Those of a shorter block overlap as well. Blocks of one length that differ have words that
// differ. Those of an empty one do not count.
func (k *Key) block(f *fold, p []byte) uint64 {
	if len(p) == 0 {
		return 0
	}
	var low, high uint64
	i := 0
	if len(p) > fewBytes {
		i = (len(p) - 1) &^ 15
		low, high = pairs(&k.words[0], &p[0], i/16)
	}
	for ; i+16 < len(p); i += 16 {
		w, at := p[i:i+16:i+16], i/8%blockWords
		low, high = add(low, high, word(w)+k.words[at], word(w[8:])+k.words[at|1])
	}
	var a, b uint64
	if n := len(p); n >= 16 {
		a, b = word(p[n-16:]), word(p[n-8:])
	} else {
		a, b = short(p)
	}
	at := i / 8 % blockWords
	low, high = add(low, high, a+k.words[at], b+k.words[at|1])
	return f.of(low, high, len(p))
}

// of returns what the numbers of a block of n bytes with a hash add.
func (f *fold) of(low, high uint64, n int) uint64 {
	return f.low0*uint64(uint32(low)) + f.low1*(low>>32) +
		f.high0*uint64(uint32(high)) + f.high1*(high>>32) + f.length*uint64(n)
}

// add adds the product of a and b to a number of 128 bits.
func add(low, high, a, b uint64) (uint64, uint64) {
	h, l := bits.Mul64(a, b)
	low, carry := bits.Add64(low, l, 0)
	high, _ = bits.Add64(high, h, carry)
	return low, high
}

func word(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// short returns the words of a block of less than 16 bytes.
func short(p []byte) (a, b uint64) {
	switch n := len(p); {
	case n >= 8:
		return word(p), word(p[n-8:])
	case n >= 4:
		return uint64(binary.LittleEndian.Uint32(p)), uint64(binary.LittleEndian.Uint32(p[n-4:]))
	case n > 0:
		return uint64(p[0]) | uint64(p[n/2])<<8 | uint64(p[n-1])<<16, 0
	}
	return 0, 0
}
