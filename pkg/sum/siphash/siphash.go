// Package siphash is SipHash-1-3, a hash with a key (Aumasson, Bernstein: INDOCRYPT 2012). Who does
// not know the key cannot choose inputs whose hashes collide, or are of one kind. So it places what
// users choose. It is no checksum for anybody who has the key, and no signature.
package siphash

import (
	"encoding/binary"
	"math/bits"
)

// Key is the secret of a hash: two words, not an array, so that it is passed in registers.
type Key struct{ K0, K1 uint64 }

// Sum is the hash of p under k. It allocates nothing.
func Sum(k Key, p []byte) uint64 {
	v0, v1 := k.K0^0x736F6D6570736575, k.K1^0x646F72616E646F6D
	v2, v3 := k.K0^0x6C7967656E657261, k.K1^0x7465646279746573
	last := uint64(len(p)) << 56 // the last word has the length besides the last bytes
	for ; len(p) >= 8; p = p[8:] {
		m := binary.LittleEndian.Uint64(p)
		v0, v1, v2, v3 = round(v0, v1, v2, v3^m)
		v0 ^= m
	}
	for i, c := range p {
		last |= uint64(c) << (8 * i)
	}
	v0, v1, v2, v3 = round(v0, v1, v2, v3^last)
	v0, v1, v2, v3 = round(v0^last, v1, v2^0xFF, v3)
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	return v0 ^ v1 ^ v2 ^ v3
}

// round is one round of SipHash: in-line, so that the four words stay in registers.
func round(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v2 += v3
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 = bits.RotateLeft64(v0, 32) + v3
	v2 += v1
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	return v0, v1, bits.RotateLeft64(v2, 32), v3
}
