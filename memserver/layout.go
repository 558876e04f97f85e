package memserver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/dmindex/dmindex/pkg/pool"
)

// The data region (verbs.RegionData), one file:
//
//	offset         size        what
//	0              4 KiB       header page: not given to anybody
//	4 KiB          64 x 4 KiB  superblock slots, one for each index
//	260 KiB        32 x locks  repair records, one for each lock of the lock region
//	...            64 x slots  intent slots, for each superblock slot the same number
//	...            8 x slots   their presence words, if there is room for all before chunk 1
//	...            ...         unused, up to a multiple of the chunk size
//	f              chunk       chunk 1
//	f + 1 x chunk  chunk       chunk 2
//	...
//
// f is the first multiple of the chunk size behind the intent slots: one chunk, unless chunks are
// small and locks many. Presence words move no chunk, so a region keeps its layout whether they are
// used or not. In a tmpfs the unused part before it takes no memory. Offset 0 is nobody's,
// so that address 0 can be nil.
//
// The repair record of lock n says what the lock's holder is about, so that it can be put right if
// it is fenced; its content is the index's. Intent slots are what sessions that take lock words in
// the index's own memory have for that (pool.SweepWords). An index has 768 of them with the default
// lock table, and never less than 16. A presence word says which node the session of its slot has
// entered (pool.Session.Enter).
//
// The lock region (verbs.RegionLocks) is a file of its own: 16-bit locks and nothing else.
//
// The header, little-endian:
//
//	offset  size  field
//	     0     8  magic "dmRegion", stored last
//	     8     4  format version: 3, or 4 while another copy counts (header.shared)
//	    12     4  CRC-32C of bytes 0 to 72, this field taken as zero
//	    16     8  incarnation: random; changes when the content is lost, and only then
//	    24     8  size of the data region
//	    32     8  size of a chunk
//	    40     8  size of the lock region
//	    48     8  superblock slots
//	    56    16  boot id of the machine that wrote the content; zero = not known
//
// Version 4 is version 3 beside a file dmindex.volume without which nobody may serve the memory: it
// says that answers wait for another copy, so that one may serve by now. A program that knows no
// volumes, and would serve whatever memory it finds, refuses the version. The two change by one
// store to bytes 8 to 16, so a process that ends meanwhile leaves either.
const (
	regionMagic   = "dmRegion"
	regionVersion = 3
	sharedVersion = 4
	headerSize    = 72

	pageBytes       = 4096
	superblockBytes = 4096
	superblockSlots = 64
	superblockStart = pageBytes
	repairBytes     = 32 // of a repair record
	repairStart     = superblockStart + superblockSlots*superblockBytes

	leastIntents = 16 // of an index

	// MinChunkBytes and MaxChunkBytes bound Config.ChunkBytes.
	MinChunkBytes = 1 << 20
	MaxChunkBytes = 1 << 30
)

// errForeign is returned when a file holds no region of ours: it is new, or its making was never
// finished.
var errForeign = errors.New("no region of a memory server")

// header is the header page, decoded.
type header struct {
	incarnation uint64
	dataBytes   uint64
	chunkBytes  uint64
	lockBytes   uint64
	slots       uint64
	boot        [16]byte
	shared      bool // the volume has another copy
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (h *header) version() uint32 {
	if h.shared {
		return sharedVersion
	}
	return regionVersion
}

func (h *header) encode() (b [headerSize]byte) {
	copy(b[:], regionMagic)
	le := binary.LittleEndian
	le.PutUint32(b[8:], h.version())
	for i, v := range []uint64{h.incarnation, h.dataBytes, h.chunkBytes, h.lockBytes, h.slots} {
		le.PutUint64(b[16+8*i:], v)
	}
	copy(b[56:], h.boot[:])
	le.PutUint32(b[12:], crc32.Checksum(b[:], castagnoli))
	return b
}

// decodeHeader reads a header of this format version. Errors: errForeign, or a sentence on what is
// wrong with it.
func decodeHeader(b []byte) (h header, err error) {
	if len(b) < headerSize || string(b[:8]) != regionMagic {
		return header{}, errForeign
	}
	le := binary.LittleEndian
	v := le.Uint32(b[8:])
	if v != regionVersion && v != sharedVersion {
		return header{}, fmt.Errorf("its format version is %d, this program has %d and %d: run the program that wrote it, "+
			"or drain the server and start again with an empty data directory", v, regionVersion, sharedVersion)
	}
	h.shared = v == sharedVersion
	for i, v := range []*uint64{&h.incarnation, &h.dataBytes, &h.chunkBytes, &h.lockBytes, &h.slots} {
		*v = le.Uint64(b[16+8*i:])
	}
	copy(h.boot[:], b[56:])
	if want := h.encode(); string(want[:]) != string(b[:headerSize]) {
		return header{}, errors.New("its header page is damaged: a client wrote outside its chunks, or the file was changed; " +
			"what it holds cannot be trusted, so start again with an empty data directory")
	}
	return h, nil
}

// sameShape says how a region that was found differs from the one that the configuration asks for.
func (h *header) sameShape(want *header) error {
	for _, d := range []struct {
		what        string
		have, asked uint64
	}{
		{"region", h.dataBytes, want.dataBytes},
		{"chunk size", h.chunkBytes, want.chunkBytes},
		{"lock table", h.lockBytes, want.lockBytes},
		{"number of superblock slots", h.slots, want.slots},
	} {
		if d.have != d.asked {
			return fmt.Errorf("its %s is %d, the configuration asks for %d: set it back, "+
				"or drain the server and start again with an empty data directory", d.what, d.have, d.asked)
		}
	}
	return nil
}

func superblockOffset(slot int) uint64 { return superblockStart + uint64(slot)*superblockBytes }

// repairOffset is where the repair record of a lock lies in the data region.
func repairOffset(lock uint64) uint64 { return repairStart + lock*repairBytes }

// intentSlots is how many intent slots each index has, intentOffset where those of a superblock
// slot begin.
func intentSlots(lockBytes uint64) uint64 {
	return max(leastIntents, lockBytes/2*3/8/superblockSlots)
}

func intentOffset(lockBytes uint64, slot int) uint64 {
	return roundUp(repairOffset(lockBytes/2), pool.IntentBytes) + uint64(slot)*intentSlots(lockBytes)*pool.IntentBytes
}

// presenceOffset is where the presence words of a superblock slot begin, one for each intent slot;
// 0 = the region has no room for them.
func presenceOffset(chunkBytes, lockBytes uint64, slot int) uint64 {
	first, each := intentOffset(lockBytes, superblockSlots), intentSlots(lockBytes)*pool.PresenceBytes
	if first+superblockSlots*each > chunksStart(chunkBytes, lockBytes) {
		return 0
	}
	return first + uint64(slot)*each
}

// chunksStart is where chunk 1 lies.
func chunksStart(chunkBytes, lockBytes uint64) uint64 {
	return roundUp(intentOffset(lockBytes, superblockSlots), chunkBytes)
}

// chunkOffset is where a chunk lies.
func (h *header) chunkOffset(number uint32) uint64 {
	return chunksStart(h.chunkBytes, h.lockBytes) + uint64(number-1)*h.chunkBytes
}

// chunkAt is the number of the chunk that lies at offset; 0 if none does.
func (h *header) chunkAt(offset uint64) uint32 {
	start := chunksStart(h.chunkBytes, h.lockBytes)
	if offset < start || (offset-start)%h.chunkBytes != 0 || (offset-start)/h.chunkBytes >= uint64(h.chunks()) {
		return 0
	}
	return uint32((offset-start)/h.chunkBytes) + 1
}

// chunks is how many can be handed out.
func (h *header) chunks() uint32 {
	return uint32((h.dataBytes - chunksStart(h.chunkBytes, h.lockBytes)) / h.chunkBytes)
}
