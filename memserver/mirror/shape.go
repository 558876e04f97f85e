package mirror

import (
	"encoding/binary"
	"fmt"
)

// Shape is what a memory server must know of another one's memory and ledger to open a copy of
// them.
type Shape struct {
	Size   uint64 // of the data region
	Chunk  uint64 // size of one
	Locks  uint64 // size of the lock table
	Slots  uint64 // superblock slots
	Layout uint32 // format version of the data region
	Ledger uint32 // newest format version of a ledger that this program writes, and reads
}

const shapeBytes = 40

func (s *Shape) append(dst []byte) []byte {
	for _, n := range []uint64{s.Size, s.Chunk, s.Locks, s.Slots} {
		dst = binary.LittleEndian.AppendUint64(dst, n)
	}
	dst = binary.LittleEndian.AppendUint32(dst, s.Layout)
	return binary.LittleEndian.AppendUint32(dst, s.Ledger)
}

func (s *Shape) read(b []byte) {
	for i, n := range []*uint64{&s.Size, &s.Chunk, &s.Locks, &s.Slots} {
		*n = binary.LittleEndian.Uint64(b[8*i:])
	}
	s.Layout, s.Ledger = binary.LittleEndian.Uint32(b[32:]), binary.LittleEndian.Uint32(b[36:])
}

// checkCopy is why a memory server of shape s could not open a copy of a source's memory; nil = it
// could. The source may write its ledger in any version up to its newest, as long as it serves.
func (s *Shape) checkCopy(source *Shape) error {
	for _, d := range []struct {
		what       string
		here, from uint64
	}{
		{"data region", s.Size, source.Size},
		{"chunk size", s.Chunk, source.Chunk},
		{"lock table", s.Locks, source.Locks},
		{"number of superblock slots", s.Slots, source.Slots},
	} {
		if d.here != d.from {
			return fmt.Errorf("its %s is %d, the one of this copy %d: give all copies of a volume the same sizes", d.what, d.from, d.here)
		}
	}
	if s.Layout != source.Layout {
		return fmt.Errorf("its memory has format version %d, this copy's program has %d: give all copies of a volume the same image", source.Layout, s.Layout)
	}
	if s.Ledger < source.Ledger {
		return fmt.Errorf("it may write its ledger in format version %d, this copy's program reads none above %d: give the copy an image that is not older", source.Ledger, s.Ledger)
	}
	return nil
}
