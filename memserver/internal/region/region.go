package region

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/memserver/internal/core"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/memserver/mirror"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Region is the memory of a server: two mapped files.
type Region struct {
	Header
	data, locks mapping
	Existed     bool           // with its content
	holes       bool           // the file system says where the data region has no pages
	Journal     *verbs.Journal // nil = the memory has no copy
}

// Found says what is done with a region that an earlier process left.
type Found uint8

const (
	AsFound Found = iota // one with a header page is taken, and else a new one made
	AsNew                // a new one is made
	AsTaken              // the one that is there is taken: of a copy, perhaps without a header page
)

// Open finds the region in d or makes a new one, which is all zero; with d = nil it makes one
// in anonymous memory. A new region is valid only after Publish: a process that restarts before
// makes another one.
func Open(d *Directory, want Header, as Found, log *slog.Logger) (r *Region, err error) {
	r = &Region{Header: want}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
			r = nil
		}
	}()
	if d == nil {
		r.Incarnation = newIncarnation()
		if r.data.file, err = memfd("dmindex-region", want.DataBytes); err == nil {
			// as long as the mapping, all of which is reserved
			r.locks.file, err = memfd("dmindex-locks", roundUp(want.LockBytes, PageBytes))
		}
	} else {
		err = r.openFiles(d, want, as, log)
	}
	if err == nil {
		var fs unix.Statfs_t
		if err = unix.Fstatfs(int(r.data.file.Fd()), &fs); err == nil {
			r.holes = uint32(fs.Type) == unix.TMPFS_MAGIC
		}
	}
	if err == nil {
		err = r.data.mmap(roundUp(want.DataBytes, pageSizeOf(d)))
	}
	if err == nil {
		err = r.locks.mmap(roundUp(want.LockBytes, pageSizeOf(d)))
	}
	return r, err
}

func pageSizeOf(d *Directory) uint64 {
	if d == nil {
		return PageBytes
	}
	return d.PageSize
}

// Publish writes the header page, the magic last: from then on a restarted process finds the
// region.
func (r *Region) Publish() {
	b := r.Header.Encode()
	copy(r.data.bytes[8:], b[8:])
	magic := *(*uint64)(unsafe.Pointer(&b[0]))
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&r.data.bytes[0])), magic)
}

// NoteShared notes in the header page, if there is one, whether the volume has another copy.
func (r *Region) NoteShared(on bool) {
	if r.Shared == on {
		return
	}
	r.Shared = on
	b := r.Header.Encode()
	if binary.LittleEndian.Uint64(r.data.bytes) == binary.LittleEndian.Uint64(b[:]) { // the magic
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&r.data.bytes[8])), *(*uint64)(unsafe.Pointer(&b[8])))
	}
}

// Withdraw takes back what publish did.
func (r *Region) Withdraw() {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&r.data.bytes[0])), 0)
}

// Prepare makes the region of a copy, which has the changes of a primary, one that can be served
// with that primary's ledger. It returns how many locks say REPAIR now. It can be repeated.
func (r *Region) Prepare(l *ledger.Ledger) (turned uint64, err error) {
	shape := r.Shape()
	if shape.Incarnation = l.Shape().Incarnation; l.Shape() != shape {
		return 0, fmt.Errorf("the ledger of the copy is of another region: it has %+v, the region %+v; give all copies of a volume the same memory", l.Shape(), shape)
	}
	r.Incarnation = shape.Incarnation
	clear(r.LockTable())
	turned = TurnLocks(r.LockTable(), l)
	for _, s := range r.Unrecorded() {
		if s.First >= PageBytes {
			clear(r.data.bytes[s.First:s.End])
		}
	}
	r.Publish()
	r.Existed = true
	return turned, nil
}

// Shape is what the ledger of the region is for.
func (r *Region) Shape() ledger.Shape {
	return ledger.Shape{Incarnation: r.Incarnation, ChunkBytes: r.ChunkBytes, Chunks: r.Chunks(), Slots: SuperblockSlots, Locks: r.LockBytes / 2}
}

// CopyShape is what a copy of the region must have as it has it.
func (r *Region) CopyShape() mirror.Shape {
	return mirror.Shape{Size: r.DataBytes, Chunk: r.ChunkBytes, Locks: r.LockBytes, Slots: r.Slots, Layout: Version, Ledger: ledger.Version}
}

// Memory returns the region as providers serve it.
func (r *Region) Memory() []verbs.Memory {
	return []verbs.Memory{
		{ID: verbs.RegionData, Bytes: r.Bytes(), File: r.data.file},
		{ID: verbs.RegionLocks, Bytes: r.LockTable(), File: r.locks.file},
	}
}

// Bytes returns the data region.
func (r *Region) Bytes() []byte { return r.data.bytes[:r.DataBytes] }

// LockTable returns the lock region. Its mapping continues to the end of a page, which may be a
// huge one.
func (r *Region) LockTable() []byte { return r.locks.bytes[:r.LockBytes] }

// Words are those of the region.
func (r *Region) Words() core.Words {
	return core.Words{
		Bytes: r.data.bytes,
		First: func(slot int) uint64 { return IntentOffset(r.LockBytes, slot) },
		Slots: int(IntentSlots(r.LockBytes)),
		Chunk: func(at uint64) uint32 { return r.ChunkAt(at &^ (r.ChunkBytes - 1)) },

		ChunkAt:    r.ChunkOffset,
		ChunkBytes: r.ChunkBytes,
	}
}

// Reserve allocates all pages now (mapping.reserve).
func (r *Region) Reserve() error { return errors.Join(r.data.reserve(), r.locks.reserve()) }

// Close unmaps the region. The memory must not be used any more.
func (r *Region) Close() error { return errors.Join(r.data.close(), r.locks.close()) }

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }
