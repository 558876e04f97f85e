// Package lock has the parts of lock words that clients and memory servers share: the word, the
// intent slot of a session, the sweep of a fence; and the queue in which sessions of one client
// wait for a word.
package lock

import (
	"encoding/binary"
	"hash/crc32"
)

// A lock word is 8 aligned bytes of the data region: in a node, or in a strip of such words. Only
// atomics touch it (G2).
//
//	bit 0-15   the holder lane: the client that holds the lock, 0 = free, or Repair
//	bit 16-63  the design's own
//
// Own bits are changed by who holds the lock, when it releases it. Others may change own bits by
// atomics that leave the holder lane alone, as counts are, if no holder changes them.

// Repair is what stands in the holder lane of a word whose holder was fenced.
const Repair = 1<<HolderBits - 1

// HolderBits is the width of the holder lane, HolderMask the lane.
const (
	HolderBits = 16
	HolderMask = 1<<HolderBits - 1
)

// Holder is the holder lane of a word.
func Holder(word uint64) uint16 { return uint16(word) }

// Own is a word's own bits.
func Own(word uint64) uint64 { return word >> HolderBits }

// An intent slot is 64 bytes of the memory server of the words that it names. One session of one
// client uses it. All integers are little-endian, but for the owner, which is an atomic's word and
// in the byte order of the machine.
//
//	offset  size  field
//	0       8     owner: bits 0-15 the id of the client that has the slot, 0 = none; bit 16: the
//	              client is fenced, and its change is owed; bits 32-47: the id's generation
//	8       8     name: offset of the lock word; 0 = the slot names none
//	16      8           offset of the node, as the session named it
//	24      4           sequence number of the acquisition in this slot
//	28      4           CRC-32C of bytes 8 to 28, exclusive or the client's number times
//	              0x9E3779B1
//	32      8     change: offset of the image
//	40      8             offset of what the image replaces
//	48      4             length of the image
//	52      4             CRC-32C of the image
//	56      4             CRC-32C of bytes 8 to 28 and 32 to 56, exclusive or the client as above,
//	              and 1 for 0; 0 = no change is under way
//	60      4             zero
//
// Only atomics touch the owner, and no atomic touches the rest. Name and change are two parts, each
// with its checksum, so that a change which is cut short spoils no name. The sequence number ties a
// change to the acquisition under which it was made; the client's number in both checksums ends a
// name and a change that an earlier owner left, since sequence numbers of a slot's owners begin
// anew. The number is the id and its generation, so an earlier owner with the same id counts, too.
//
// A change ends with a zero over the word of its checksum, and no other one. A WRITE of the next
// name and change that is cut short may have any of its words, and the others are those of the
// change before: with its checksum there, that one would come to life again under its own name, as
// it does if its first word is taken out, and the next image has the same place.
//
// Users choose much of an image, but not its CRC: it has sums under the index's secret (package
// sum). So nobody chooses changes of which a mixture verifies.
const (
	SlotBytes   = 64
	NameAt      = 8
	NameBytes   = 24
	ChangeAt    = 32
	ChangeBytes = 32
	ChangeSumAt = 56
)

// Owed is the bit of an owner whose change is yet to be brought to its end.
const Owed = 1 << HolderBits

// Owner is the owner's word of a slot that a client has, by its number: the id in the lower 16
// bits, its generation in the upper ones.
func Owner(number uint32) uint64 {
	return uint64(number&HolderMask) | uint64(number>>HolderBits)<<generationAt
}

const generationAt = 32

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Name says which lock word a session is about to take, or has.
type Name struct {
	Word, Node uint64
	Seq        uint32
	Client     uint32 // its number
}

// Encode writes the name into the first NameBytes of b.
func (n *Name) Encode(b []byte) {
	binary.LittleEndian.PutUint64(b, n.Word)
	binary.LittleEndian.PutUint64(b[8:], n.Node)
	binary.LittleEndian.PutUint32(b[16:], n.Seq)
	binary.LittleEndian.PutUint32(b[20:], nameSum(b, n.Client))
}

func nameSum(b []byte, client uint32) uint32 {
	return crc32.Checksum(b[:20], castagnoli) ^ clientSum(client)
}

// clientSum is what a client adds to the checksums of its slots.
func clientSum(client uint32) uint32 { return client * 0x9E3779B1 }

// Change says what a session is about to write under the lock word that its slot names.
type Change struct {
	Image, Target uint64
	Length        int
	Sum           uint32 // of the image
}

// Encode writes the change of a client into the first ChangeBytes of b. name is that of its slot,
// encoded.
func (c *Change) Encode(b, name []byte, client uint32) {
	binary.LittleEndian.PutUint64(b, c.Image)
	binary.LittleEndian.PutUint64(b[8:], c.Target)
	binary.LittleEndian.PutUint32(b[16:], uint32(c.Length))
	binary.LittleEndian.PutUint32(b[20:], c.Sum)
	binary.LittleEndian.PutUint32(b[24:], changeSum(b, name, client))
	binary.LittleEndian.PutUint32(b[28:], 0)
}

// changeSum leaves out the name's own checksum: the CRC of bytes with their CRC behind them is the
// same for all.
func changeSum(b, name []byte, client uint32) uint32 {
	return max(1, crc32.Update(crc32.Checksum(name[:20], castagnoli), castagnoli, b[:24])^clientSum(client))
}

// Sum is the checksum of an image; UpdateSum that of an image whose first part has checksum sum.
func Sum(image []byte) uint32                   { return crc32.Checksum(image, castagnoli) }
func UpdateSum(sum uint32, image []byte) uint32 { return crc32.Update(sum, castagnoli, image) }

// Slot is a decoded slot.
type Slot struct {
	Owner  uint64 // as read
	Client uint16 // the id of the client that has it; 0 = none
	Owed   bool
	Names  bool // Name verifies
	Name   Name
	Under  bool // Change verifies, and a change is under way
	Change Change
}

// Decode decodes the slot in b, as READ.
func (s *Slot) Decode(b []byte) {
	owner := binary.NativeEndian.Uint64(b)
	s.Owner, s.Client, s.Owed = owner, Holder(owner), owner&Owed != 0
	number := uint32(owner>>generationAt)<<HolderBits | uint32(s.Client)
	n, c := b[NameAt:], b[ChangeAt:]
	s.Name = Name{binary.LittleEndian.Uint64(n), binary.LittleEndian.Uint64(n[8:]), binary.LittleEndian.Uint32(n[16:]), number}
	s.Names = s.Name.Word != 0 && s.Client != 0 && binary.LittleEndian.Uint32(n[20:]) == nameSum(n, number)
	s.Change = Change{binary.LittleEndian.Uint64(c), binary.LittleEndian.Uint64(c[8:]),
		int(binary.LittleEndian.Uint32(c[16:])), binary.LittleEndian.Uint32(c[20:])}
	s.Under = s.Names && s.Change.Image != 0 && binary.LittleEndian.Uint32(c[24:]) == changeSum(c, n, number)
}
