// Package blocks has the values that are longer than an index's inline size. Each lies in a block
// of its own, and its entry has a reference to it. A block is written once, before anybody can find
// it, and never changed but for its dead mark.
//
//	offset  size  field
//	0       10    version (random), CRC over bytes 8 to 24, kind 255, flags: see package unit
//	10      2     zero
//	12      4     length of the value
//	16      4     check of the value
//	20      4     zero
//	24      ...   the value
//
// The check is a CRC-32C of the value, started with address and length. The reference has it too,
// so a reader needs nothing of the block but the value, and a dead mark does not touch that. An
// entry's reference, in the place of its value:
//
//	offset  size  field
//	0       8     address of the block
//	8       4     check of the value
//	12      2     length of the value
//	14      2     size of the block in units of 64 bytes
package blocks

import (
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/crc"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

const (
	// MaxValue is the longest value that a block can hold.
	MaxValue = 32 << 10

	// HeadBytes is where the value begins in its block.
	HeadBytes = unit.DeadBytes

	atLength     = 12
	atValueCheck = 16
	kind         = 255
	sizeUnit     = 64
	leastValue   = 64 // what blocks are made for at least
)

// Reference says where a value lies that is not in its entry.
type Reference struct {
	Addr   pool.Addr
	Check  uint32
	Length int // of the value
	Size   int // of the block
}

// Encode writes r to b, of item.ReferenceBytes.
func (r *Reference) Encode(b []byte) {
	binary.LittleEndian.PutUint64(b, uint64(r.Addr))
	binary.LittleEndian.PutUint32(b[8:], r.Check)
	binary.LittleEndian.PutUint16(b[12:], uint16(r.Length))
	binary.LittleEndian.PutUint16(b[14:], uint16(r.Size/sizeUnit))
}

// Decode returns the reference that b encodes.
func Decode(b []byte) Reference {
	return Reference{
		Addr:   pool.Addr(binary.LittleEndian.Uint64(b)),
		Check:  binary.LittleEndian.Uint32(b[8:]),
		Length: int(binary.LittleEndian.Uint16(b[12:])),
		Size:   int(binary.LittleEndian.Uint16(b[14:])) * sizeUnit,
	}
}

// ReferenceIn returns the reference of a verified entry. ok is false if its value is in it.
func ReferenceIn(c *item.Codec, e []byte) (r Reference, ok bool) {
	if !c.HasReference(e) {
		return r, false
	}
	return Decode(c.ValueOf(e)), true
}

// PutEntry encodes a key with a reference into dst and returns the entry.
func (r *Reference) PutEntry(c *item.Codec, dst, key []byte) []byte {
	var b [item.ReferenceBytes]byte
	r.Encode(b[:])
	return c.PutReference(dst, key, b[:])
}

// checkOf returns the check of a value in the block at a.
func checkOf(a pool.Addr, value []byte) uint32 {
	return crc.Sum(unit.Seed(a, uint32(len(value))), value)
}

// Matches reports whether value is what r stands for.
func (r *Reference) Matches(value []byte) bool { return r.Check == checkOf(r.Addr, value) }

// ReferTo returns the reference to a value in the block of size bytes at a.
func ReferTo(a pool.Addr, size int, value []byte) Reference {
	return Reference{Addr: a, Check: checkOf(a, value), Length: len(value), Size: size}
}

// Size returns the size of the block for a value of n bytes: one of two in each doubling, so that
// blocks of few sizes share chunks and waste a third at most.
func Size(c *item.Codec, n int) int {
	n = min(max(n, leastValue), c.MaxValue)
	up := 1 << bits.Len(uint(max(n, leastValue)-1))
	if n <= up*3/4 {
		up = up * 3 / 4
	}
	return (HeadBytes + min(up, c.MaxValue) + sizeUnit - 1) &^ (sizeUnit - 1)
}

// Build makes the image of the block in b and returns it.
func (r *Reference) Build(b []byte, version uint32, value []byte) []byte {
	clear(b[:HeadBytes])
	binary.LittleEndian.PutUint32(b[unit.AtVersion:], version)
	b[unit.AtKind], b[unit.AtFlags] = kind, unit.Node
	binary.LittleEndian.PutUint32(b[atLength:], uint32(len(value)))
	binary.LittleEndian.PutUint32(b[atValueCheck:], r.Check)
	unit.Seal(b, HeadBytes, r.Addr, version)
	return b[:HeadBytes+copy(b[HeadBytes:], value)]
}

// Verify reports whether b, which may be any bytes, is a living block at a.
func Verify(a pool.Addr, b []byte) bool {
	if b[unit.AtKind] != kind || b[unit.AtFlags] != unit.Node ||
		!unit.Verify(b, HeadBytes, a, unit.Version(b)) {
		return false
	}
	n := int(binary.LittleEndian.Uint32(b[atLength:]))
	return n <= len(b)-HeadBytes &&
		binary.LittleEndian.Uint32(b[atValueCheck:]) == checkOf(a, b[HeadBytes:HeadBytes+n])
}

// putDead makes the dead mark of the block at a in b and returns it.
func putDead(b []byte, a pool.Addr, version uint32) []byte {
	return b[:unit.PutDead(b, a, kind, version)]
}

// Marks implements pool.Marks for nodes and blocks. A block is marked behind the word that forgot
// it, so it is over; and no cache has references to blocks that a change does not take out of it.
// What made a node dead may still have to be repaired, and cached nodes lead to it.
func Marks(a pool.Addr, head []byte) pool.Mark {
	switch {
	case !unit.IsDead(a, head):
		return pool.Used
	case head[unit.AtKind] == kind:
		return pool.Uncached
	}
	return pool.Dead
}

// Allocator is a session, whose operation the block is for, or the pool, where no operation waits.
type Allocator interface {
	AllocateBlock(size int, near pool.Addr) (pool.Addr, error)
}

// Allocate takes a block for a value of n bytes, near a node. Where there is none of the right size
// a larger one will do. ErrPoolFull: there is no memory for it.
func Allocate(c *item.Codec, from Allocator, n int, near pool.Addr) (a pool.Addr, size int, err error) {
	for size = Size(c, n); ; size = Size(c, size-HeadBytes+1) {
		a, e := from.AllocateBlock(size, near)
		if e == nil {
			return a, size, nil
		}
		if err == nil {
			err = e
		}
		if !errors.Is(e, index.ErrPoolFull) || size >= Size(c, c.MaxValue) {
			return pool.Nil, 0, op.Failure(err, false)
		}
	}
}
