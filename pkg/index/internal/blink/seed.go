package blink

import (
	"github.com/dmindex/dmindex/pkg/index/internal/crc"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Every unit that is written on its own carries a CRC-32C over its content, whose start value is made of the node's address, the
// node's version and the unit's number: 0 for the header (of a leaf) or the whole node (of an inner node), 1+i for slot i. The start value
// is a bijection of each of version and number while the other stays, so that the same content at another version or in another slot
// never verifies.

func sum(start uint32, content []byte) uint32 { return crc.Sum(start, content) }

// SeedOf is the start value of unit 0 of a node at a version.
func SeedOf(a pool.Addr, version uint32) uint32 {
	h := uint64(a) * 0x9E3779B97F4A7C15
	return uint32(h>>32) ^ uint32(h) + version*0x85EBCA6B
}

// slotSeed is the start value of slot i, given that of unit 0.
func slotSeed(seed uint32, i int) uint32 { return seed + uint32(i+1)*0xC2B2AE35 }
