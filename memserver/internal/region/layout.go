package region

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
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
	Version       = 3
	SharedVersion = 4
	HeaderBytes   = 72

	PageBytes       = 4096
	SuperblockBytes = 4096
	SuperblockSlots = 64
	superblockStart = PageBytes
	RepairBytes     = 32 // of a repair record
	RepairStart     = superblockStart + SuperblockSlots*SuperblockBytes

	leastIntents = 16 // of an index
)

// errForeign is returned when a file holds no region of ours: it is new, or its making was never
// finished.
var errForeign = errors.New("no region of a memory server")

// Header is the header page, decoded.
type Header struct {
	Incarnation uint64
	DataBytes   uint64
	ChunkBytes  uint64
	LockBytes   uint64
	Slots       uint64
	Boot        [16]byte
	Shared      bool // the volume has another copy
}

var table = crc32.MakeTable(crc32.Castagnoli)

func (h *Header) version() uint32 {
	if h.Shared {
		return SharedVersion
	}
	return Version
}

func (h *Header) Encode() (b [HeaderBytes]byte) {
	copy(b[:], regionMagic)
	le := binary.LittleEndian
	le.PutUint32(b[8:], h.version())
	for i, v := range []uint64{h.Incarnation, h.DataBytes, h.ChunkBytes, h.LockBytes, h.Slots} {
		le.PutUint64(b[16+8*i:], v)
	}
	copy(b[56:], h.Boot[:])
	le.PutUint32(b[12:], crc32.Checksum(b[:], table))
	return b
}

// Decode reads a header of this format version. Errors: errForeign, or a sentence on what is
// wrong with it.
func Decode(b []byte) (h Header, err error) {
	if len(b) < HeaderBytes || string(b[:8]) != regionMagic {
		return Header{}, errForeign
	}
	le := binary.LittleEndian
	v := le.Uint32(b[8:])
	if v != Version && v != SharedVersion {
		return Header{}, fmt.Errorf("its format version is %d, this program has %d and %d: run the program that wrote it, "+
			"or drain the server and start again with an empty data directory", v, Version, SharedVersion)
	}
	h.Shared = v == SharedVersion
	for i, v := range []*uint64{&h.Incarnation, &h.DataBytes, &h.ChunkBytes, &h.LockBytes, &h.Slots} {
		*v = le.Uint64(b[16+8*i:])
	}
	copy(h.Boot[:], b[56:])
	if want := h.Encode(); string(want[:]) != string(b[:HeaderBytes]) {
		return Header{}, errors.New("its header page is damaged: a client wrote outside its chunks, or the file was changed; " +
			"what it holds cannot be trusted, so start again with an empty data directory")
	}
	return h, nil
}

// sameShape says how a region that was found differs from the one that the configuration asks for.
func (h *Header) sameShape(want *Header) error {
	for _, d := range []struct {
		what        string
		have, asked uint64
	}{
		{"region", h.DataBytes, want.DataBytes},
		{"chunk size", h.ChunkBytes, want.ChunkBytes},
		{"lock table", h.LockBytes, want.LockBytes},
		{"number of superblock slots", h.Slots, want.Slots},
	} {
		if d.have != d.asked {
			return fmt.Errorf("its %s is %d, the configuration asks for %d: set it back, "+
				"or drain the server and start again with an empty data directory", d.what, d.have, d.asked)
		}
	}
	return nil
}

func SuperblockOffset(slot int) uint64 { return superblockStart + uint64(slot)*SuperblockBytes }

// RepairOffset is where the repair record of a lock lies in the data region.
func RepairOffset(lock uint64) uint64 { return RepairStart + lock*RepairBytes }

// IntentSlots is how many intent slots each index has, IntentOffset where those of a superblock
// slot begin.
func IntentSlots(lockBytes uint64) uint64 {
	return max(leastIntents, lockBytes/2*3/8/SuperblockSlots)
}

func IntentOffset(lockBytes uint64, slot int) uint64 {
	return roundUp(RepairOffset(lockBytes/2), pool.IntentBytes) + uint64(slot)*IntentSlots(lockBytes)*pool.IntentBytes
}

// PresenceOffset is where the presence words of a superblock slot begin, one for each intent slot;
// 0 = the region has no room for them.
func PresenceOffset(chunkBytes, lockBytes uint64, slot int) uint64 {
	first, each := IntentOffset(lockBytes, SuperblockSlots), IntentSlots(lockBytes)*pool.PresenceBytes
	if first+SuperblockSlots*each > ChunksStart(chunkBytes, lockBytes) {
		return 0
	}
	return first + uint64(slot)*each
}

// ChunksStart is where chunk 1 lies.
func ChunksStart(chunkBytes, lockBytes uint64) uint64 {
	return roundUp(IntentOffset(lockBytes, SuperblockSlots), chunkBytes)
}

// ChunkOffset is where a chunk lies.
func (h *Header) ChunkOffset(number uint32) uint64 {
	return ChunksStart(h.ChunkBytes, h.LockBytes) + uint64(number-1)*h.ChunkBytes
}

// ChunkAt is the number of the chunk that lies at offset; 0 if none does.
func (h *Header) ChunkAt(offset uint64) uint32 {
	start := ChunksStart(h.ChunkBytes, h.LockBytes)
	if offset < start || (offset-start)%h.ChunkBytes != 0 || (offset-start)/h.ChunkBytes >= uint64(h.Chunks()) {
		return 0
	}
	return uint32((offset-start)/h.ChunkBytes) + 1
}

// Chunks is how many can be handed out.
func (h *Header) Chunks() uint32 {
	return uint32((h.DataBytes - ChunksStart(h.ChunkBytes, h.LockBytes)) / h.ChunkBytes)
}

// Unrecorded are the parts of the data region that are not in the stream.
func (h *Header) Unrecorded() []verbs.Span {
	spans := []verbs.Span{{Region: verbs.RegionData, First: 0, End: PageBytes}}
	if at := PresenceOffset(h.ChunkBytes, h.LockBytes, 0); at != 0 {
		spans = append(spans, verbs.Span{Region: verbs.RegionData, First: at, End: at + SuperblockSlots*IntentSlots(h.LockBytes)*pool.PresenceBytes})
	}
	return spans
}
