// Package crctest has contents that a CRC-32C does not tell apart, for tests of what must do so.
package crctest

import (
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Differences returns a basis of the differences of 8 bytes that no CRC-32C shows, wherever they
// stand and whatever it starts from: each is the XOR of two words, big-endian.
func Differences() (basis []uint64) {
	sum := func(w uint64) uint32 {
		return crc32.Checksum(binary.BigEndian.AppendUint64(nil, w), castagnoli) ^ crc32.Checksum(make([]byte, 8), castagnoli)
	}
	var pivots [32]uint64 // by the highest bit of their CRC
	for bit := range 64 {
		w := uint64(1) << bit
		for sum(w) != 0 {
			top := 31
			for sum(w)>>top == 0 {
				top--
			}
			if pivots[top] == 0 {
				pivots[top] = w
				break
			}
			w ^= pivots[top]
		}
		if sum(w) == 0 {
			basis = append(basis, w)
		}
	}
	return basis
}

// Change changes the 8 bytes of p at each of some places by what a CRC-32C does not see.
func Change(p []byte, places ...int) {
	d := Differences()[0]
	for _, at := range places {
		binary.BigEndian.PutUint64(p[at:], binary.BigEndian.Uint64(p[at:])^d)
	}
}
