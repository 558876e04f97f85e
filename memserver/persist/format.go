package persist

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// All numbers are little-endian, all checksums CRC-32C.
//
// The volume, and the head of a log or checkpoint, 96 bytes:
//
//	offset  size  field
//	     0     8  magic
//	     8     4  format version
//	    12     4  checksum of the other 92 bytes
//	    16    16  set: random, the same in all files of a directory
//	    32     8  of a log or checkpoint: the position where it begins
//	    40     8  of a checkpoint: its number. Of a log: the Sync it is written with
//	    48    16  of a log: the run of the machine; zeroes = not known
//	    64     8  id of the volume
//	    72     8  bytes of the data region
//	    80     8  bytes of a chunk
//	    88     8  bytes of the lock region
//
// A frame of a log, or a record of a checkpoint, is its head and its data, which has a multiple of
// 8 bytes in a frame:
//
//	offset  size  field
//	     0     4  kind
//	     4     4  bytes of data
//	     8     8  of a frame: position. Of a piece: its offset. Of a part of the ledger: the same
//	    16     8  of a frame: all before this position was on disk
//	    24     4  checksum of the data
//	    28     4  checksum of bytes 0 to 28 and the set
//
// A frame without data is the last one of an orderly end.
const (
	version   = 1
	headBytes = 96
	partHead  = 32

	// lacksName is the name of an empty file: acknowledged changes may not be on disk.
	lacksName = "lacks"

	magicVolume     = "dmPerVol"
	magicLog        = "dmPerLog"
	magicCheckpoint = "dmPerChk"

	maxFrame   = 1 << 20 // of data
	pieceBytes = 64 << 10
)

// Kinds of frames and records. They are large, so that zeroes are none.
const (
	kindFrame uint32 = 0x646d4601 + iota
	kindPiece
	kindLedger
	kindEnd  // of a checkpoint
	kindPart // of one of a copy that has a part of the ledger, or nothing of it
)

var table = crc32.MakeTable(crc32.Castagnoli)

// Volume says what a directory is of. A directory of another one is refused.
type Volume struct {
	ID                           uint64
	Bytes, ChunkBytes, LockBytes uint64
}

type head struct {
	set      [16]byte
	position uint64
	number   uint64
	boot     [16]byte
	volume   Volume
}

func (h *head) append(b []byte, magic string) []byte {
	from := len(b)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = append(b, 0, 0, 0, 0)
	b = append(b, h.set[:]...)
	b = binary.LittleEndian.AppendUint64(b, h.position)
	b = binary.LittleEndian.AppendUint64(b, h.number)
	b = append(b, h.boot[:]...)
	for _, n := range []uint64{h.volume.ID, h.volume.Bytes, h.volume.ChunkBytes, h.volume.LockBytes} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	binary.LittleEndian.PutUint32(b[from+12:], headSum(b[from:]))
	return b
}

func headSum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:12], table), table, b[16:headBytes])
}

var errVersion = errors.New("its format version is")

var errNoHead = errors.New("it does not begin as it should")

func decodeHead(b []byte, magic string) (h head, err error) {
	if len(b) < headBytes || string(b[:8]) != magic {
		return h, errNoHead
	}
	if n := binary.LittleEndian.Uint32(b[8:]); n != version {
		return h, fmt.Errorf("%w %d, this program has %d: run the program that wrote the directory", errVersion, n, version)
	}
	if binary.LittleEndian.Uint32(b[12:]) != headSum(b) {
		return h, errNoHead
	}
	u := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	copy(h.set[:], b[16:])
	h.position, h.number = u(32), u(40)
	copy(h.boot[:], b[48:])
	h.volume = Volume{ID: u(64), Bytes: u(72), ChunkBytes: u(80), LockBytes: u(88)}
	return h, nil
}

// part is the head of a frame or record.
type part struct {
	kind      uint32
	bytes     int
	at, known uint64
	sum       uint32
}

func (p *part) put(b []byte, set *[16]byte) {
	binary.LittleEndian.PutUint32(b[0:], p.kind)
	binary.LittleEndian.PutUint32(b[4:], uint32(p.bytes))
	binary.LittleEndian.PutUint64(b[8:], p.at)
	binary.LittleEndian.PutUint64(b[16:], p.known)
	binary.LittleEndian.PutUint32(b[24:], p.sum)
	binary.LittleEndian.PutUint32(b[28:], partSum(b, set))
}

func partSum(b []byte, set *[16]byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:28], table), table, set[:])
}

// decodePart returns false for what is no head of this set.
func decodePart(b []byte, set *[16]byte) (p part, ok bool) {
	p = part{
		kind: binary.LittleEndian.Uint32(b[0:]), bytes: int(binary.LittleEndian.Uint32(b[4:])),
		at: binary.LittleEndian.Uint64(b[8:]), known: binary.LittleEndian.Uint64(b[16:]), sum: binary.LittleEndian.Uint32(b[24:]),
	}
	ok = p.kind >= kindFrame && p.kind <= kindPart && p.bytes <= maxFrame && binary.LittleEndian.Uint32(b[28:]) == partSum(b, set)
	return p, ok
}

const (
	volumeName     = "volume"
	logName        = "log."
	checkpointName = "checkpoint."
	newSuffix      = ".new"
)

// numbered is the name of a file with a number in it; numberOf is the inverse.
func numbered(prefix string, n uint64) string { return fmt.Sprintf("%s%016x", prefix, n) }

func numberOf(name, prefix string) (n uint64, ok bool) {
	text, ok := strings.CutPrefix(name, prefix)
	if !ok || len(text) != 16 {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 16, 64)
	return n, err == nil && name == numbered(prefix, n)
}

// Sync says when what is acknowledged is on disk.
type Sync uint8

const (
	// Always: before it is acknowledged. Nothing acknowledged is lost, as long as the disk keeps
	// what it says that it has.
	Always Sync = iota
	// Soon: within about 5 ms, and as long as the disk takes. Nothing acknowledged is lost if the
	// process ends, however it does. If the machine does, changes of the last moments may be.
	Soon
	// Off: when the operating system writes it, usually within 30 s, or with the next checkpoint.
	// Nothing acknowledged is lost if the process ends, and as much as that if the machine does.
	Off
)

var syncNames = [...]string{"Always", "5ms", "Off"}

func (s Sync) String() string { return syncNames[s] }

// Set is what String returns, the other way.
func (s *Sync) Set(text string) error {
	for i, name := range syncNames {
		if text == name {
			*s = Sync(i)
			return nil
		}
	}
	return fmt.Errorf("%q is none of %s", text, strings.Join(syncNames[:], ", "))
}

// Type is what flags call it.
func (s *Sync) Type() string { return "sync" }
