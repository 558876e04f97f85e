// Package unit seals what is written on its own. A unit is a piece of memory that one WRITE, or the
// WRITEs under one lock, replace: a node's header, an inner node, an entry with its slot, a block.
// A reader takes no lock. It verifies a unit and so knows that it saw the unit whole, at one
// version, at the address that it read.
//
// Every node and every block begins with the same ten bytes, little-endian:
//
//	offset  size  field
//	0       4     version: a rewrite adds 1, a new node begins with a random one
//	4       4     checksum of the first unit, from offset 8 to the unit's end
//	8       1     kind: of a node its level
//	9       1     flags
//
// The checksum starts with a number that is made of the node's address, its version and the unit's
// number: 0 for the first unit, 1+i for slot i. The start is a bijection of the version while the
// number stays, and of the number while the version stays. So the same content never verifies at
// another version or in another slot.
//
// Users choose keys and values, and so what replaces what in entries, fences, separators and
// prefixes. These have sums under the index's secret (package sum). Dead marks and blocks have a
// CRC-32C. A CRC is linear. Whether it tells two
// contents of one length apart depends on their difference alone, and on nothing that is the same
// in both: not on the start, nor on a sequence there. So of units that are torn by chance it finds
// all but one in 2^32. It does not find one that is torn between two contents which somebody has
// chosen, so that they differ in several places, and in each by what it does not see.
package unit

import (
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/internal/crc"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum"
)

// Offsets of the fields that all nodes and blocks share.
const (
	AtVersion = 0
	AtCheck   = 4
	AtKind    = 8
	AtFlags   = 9
)

// DeadBytes is the size of the image of a dead node or block.
const DeadBytes = 24

// Flags. Every living node and block has Node, so zeroed memory is neither.
const (
	Dead = 1 << 1
	Node = 1 << 7
)

// Seed returns the start value of unit 0 of the node at a, at a version.
func Seed(a pool.Addr, version uint32) uint32 {
	h := uint64(a) * 0x9E3779B97F4A7C15
	return uint32(h>>32) ^ uint32(h) + version*0x85EBCA6B
}

// SlotSeed returns the start value of slot i of a node, given that of unit 0.
func SlotSeed(seed uint32, i int) uint32 { return seed + uint32(i+1)*0xC2B2AE35 }

// Version returns the version of b, which may be any bytes.
func Version(b []byte) uint32 { return binary.LittleEndian.Uint32(b[AtVersion:]) }

// NewVersion returns the first version of a node. It is random, so that what an earlier node left
// at its address does not verify.
func NewVersion(e env.Env) uint32 { return uint32(e.Uint64()) }

// SealUnder writes the sum under k of the first unit of b, which ends at end.
func SealUnder(k *sum.Key, b []byte, end int, a pool.Addr, version uint32) {
	binary.LittleEndian.PutUint32(b[AtCheck:], k.Of(Seed(a, version), b[AtKind:end]))
}

// VerifyUnder reports whether the first unit of b, which ends at end, was sealed under k at a with
// that version.
func VerifyUnder(k *sum.Key, b []byte, end int, a pool.Addr, version uint32) bool {
	return binary.LittleEndian.Uint32(b[AtCheck:]) == k.Of(Seed(a, version), b[AtKind:end])
}

// Seal writes the CRC of the first unit of b, which ends at end.
func Seal(b []byte, end int, a pool.Addr, version uint32) {
	binary.LittleEndian.PutUint32(b[AtCheck:], crc.Sum(Seed(a, version), b[AtKind:end]))
}

// Verify reports whether the first unit of b, which ends at end, was sealed at a with that version.
func Verify(b []byte, end int, a pool.Addr, version uint32) bool {
	return binary.LittleEndian.Uint32(b[AtCheck:]) == crc.Sum(Seed(a, version), b[AtKind:end])
}

// IsDead reports whether b, of at least DeadBytes, is the image of a dead node or block at a.
func IsDead(a pool.Addr, b []byte) bool {
	return b[AtFlags] == Node|Dead && Verify(b, DeadBytes, a, Version(b))
}

// PutDead makes the image of a dead node or block in b and returns its length, DeadBytes.
func PutDead(b []byte, a pool.Addr, kind uint8, version uint32) int {
	clear(b[:DeadBytes])
	binary.LittleEndian.PutUint32(b[AtVersion:], version)
	b[AtKind], b[AtFlags] = kind, Node|Dead
	Seal(b, DeadBytes, a, version)
	return DeadBytes
}
