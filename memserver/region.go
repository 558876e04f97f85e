package memserver

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/memserver/internal/core"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/memserver/mirror"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// RegionFile is the name of the data region in a data directory.
const RegionFile = "dmindex.region"

// Files of a data directory, and of a state directory.
const (
	dataFile   = RegionFile       // the data region
	locksFile  = "dmindex.locks"  // the lock region
	guardFile  = "dmindex.guard"  // locked (flock) by the process that uses the directory
	ledgerFile = "dmindex.ledger" // the ledger, in the state directory
)

// region is the memory of a server: two mapped files.
type region struct {
	header
	data, locks mapping
	existed     bool           // with its content
	holes       bool           // the file system says where the data region has no pages
	journal     *verbs.Journal // nil = the memory has no copy
}

// mapping is a file and its pages, which are shared with other mappings of it.
type mapping struct {
	file  *os.File
	bytes []byte
}

// directory is a place for files that only one process uses at a time.
type directory struct {
	path     string
	guard    *os.File
	pageSize uint64 // of its file system: larger than pageBytes on a hugetlbfs
	huge     bool   // it is a hugetlbfs: files can be mapped but not written
	volatile bool   // its content is in memory: tmpfs or hugetlbfs
}

// openDirectory creates the directory if need be, and locks it until close. A process that dies
// leaves it unlocked.
func openDirectory(path string) (*directory, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", path, err)
	}
	guard, err := os.OpenFile(filepath.Join(path, guardFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := unix.Flock(int(guard.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		guard.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("data directory %s is in use by another memory server: stop it, or give this one a directory of its own", path)
		}
		return nil, fmt.Errorf("lock data directory %s: %w", path, err)
	}
	d := &directory{path: path, guard: guard, pageSize: pageBytes}
	switch uint32(fs.Type) {
	case unix.HUGETLBFS_MAGIC:
		d.huge, d.volatile, d.pageSize = true, true, uint64(fs.Bsize)
	case unix.TMPFS_MAGIC:
		d.volatile = true
	}
	return d, nil
}

func (s *Server) openDirectory(path string) (*directory, error) {
	d, err := openDirectory(path)
	if err == nil {
		s.release = append(s.release, d.close)
	}
	return d, err
}

func (d *directory) close() error { return d.guard.Close() }

// hasRegion reports whether an earlier process left a region, or it cannot be told.
func (d *directory) hasRegion() bool {
	info, err := os.Stat(filepath.Join(d.path, dataFile))
	return err == nil && info.Size() > 0 || err != nil && !errors.Is(err, os.ErrNotExist)
}

// found says what is done with a region that an earlier process left.
type found uint8

const (
	asFound found = iota // one with a header page is taken, and else a new one made
	asNew                // a new one is made
	asTaken              // the one that is there is taken: of a copy, perhaps without a header page
)

// openRegion finds the region in d or makes a new one, which is all zero; with d = nil it makes one
// in anonymous memory. A new region is valid only after publish: a process that restarts before
// makes another one.
func openRegion(d *directory, want header, as found, log *slog.Logger) (r *region, err error) {
	r = &region{header: want}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
			r = nil
		}
	}()
	if d == nil {
		r.incarnation = newIncarnation()
		if r.data.file, err = memfd("dmindex-region", want.dataBytes); err == nil {
			// as long as the mapping, all of which is reserved
			r.locks.file, err = memfd("dmindex-locks", roundUp(want.lockBytes, pageBytes))
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
		err = r.data.mmap(roundUp(want.dataBytes, pageSizeOf(d)))
	}
	if err == nil {
		err = r.locks.mmap(roundUp(want.lockBytes, pageSizeOf(d)))
	}
	return r, err
}

func pageSizeOf(d *directory) uint64 {
	if d == nil {
		return pageBytes
	}
	return d.pageSize
}

func (r *region) openFiles(d *directory, want header, as found, log *slog.Logger) error {
	dataPath, locksPath := filepath.Join(d.path, dataFile), filepath.Join(d.path, locksFile)
	var err error
	if r.data.file, err = os.OpenFile(dataPath, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return fmt.Errorf("open the region: %w", err)
	}
	if r.locks.file, err = os.OpenFile(locksPath, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return fmt.Errorf("open the lock table: %w", err)
	}
	dataBytes, lockBytes := roundUp(want.dataBytes, d.pageSize), roundUp(want.lockBytes, d.pageSize)
	if as == asTaken {
		r.existed = true
		return errors.Join(hasSize(r.data.file, dataBytes), hasSize(r.locks.file, lockBytes))
	}
	found, err := readHeader(r.data.file, d.pageSize)
	if as != asFound {
		err = errForeign
	}
	if err == nil {
		err = found.sameShape(&want)
	}
	if err == nil && found.boot != want.boot && found.boot != [16]byte{} && want.boot != [16]byte{} {
		log.Warn("the machine was restarted since the region was written: its content is lost", "file", dataPath, "incarnation", found.incarnation)
		err = errForeign
	}
	switch {
	case errors.Is(err, errForeign):
		r.incarnation = newIncarnation()
		if err := resize(r.data.file, dataBytes); err != nil {
			return err
		}
		return resize(r.locks.file, lockBytes)
	case err != nil:
		return fmt.Errorf("region %s: %w", dataPath, err)
	}
	r.header, r.existed = found, true
	return errors.Join(hasSize(r.data.file, dataBytes), hasSize(r.locks.file, lockBytes))
}

func hasSize(f *os.File, size uint64) error {
	info, err := f.Stat()
	if err == nil && uint64(info.Size()) != size {
		err = fmt.Errorf("%s has %d bytes and should have %d: set the configured sizes back if they were changed; else the region is damaged: start again with an empty data directory", f.Name(), info.Size(), size)
	}
	return err
}

// readHeader maps the header page, which works on a hugetlbfs as well. Errors: those of
// decodeHeader.
func readHeader(f *os.File, pageSize uint64) (header, error) {
	info, err := f.Stat()
	if err != nil {
		return header{}, err
	}
	if uint64(info.Size()) < pageSize {
		return header{}, errForeign
	}
	page, err := unix.Mmap(int(f.Fd()), 0, int(pageSize), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return header{}, fmt.Errorf("map the header page: %w", err)
	}
	defer unix.Munmap(page)
	return decodeHeader(page)
}

// resize leaves a file of size zero bytes.
func resize(f *os.File, size uint64) error {
	err := f.Truncate(0)
	if err == nil {
		err = f.Truncate(int64(size))
	}
	if err != nil {
		return fmt.Errorf("make room for %d bytes: %w", size, err)
	}
	return nil
}

// memfd makes anonymous memory with a file descriptor. Its size is sealed, so a client with the
// descriptor cannot remove pages from the server.
func memfd(name string, size uint64) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make anonymous memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	err = resize(f, size)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// mmap maps the file's first size bytes. On a hugetlbfs this reserves the pages or fails.
func (m *mapping) mmap(size uint64) (err error) {
	m.bytes, err = unix.Mmap(int(m.file.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %d bytes of %s: %w; is there as much memory, and as many huge pages if the directory is on them?", size, m.file.Name(), err)
	}
	// refused where the kernel does not do it for files: then pages are small
	unix.Madvise(m.bytes, unix.MADV_HUGEPAGE)
	return nil
}

// reserve allocates all pages now, so that a lack of memory shows here and not as SIGBUS during a
// request.
func (m *mapping) reserve() error {
	if err := unix.Fallocate(int(m.file.Fd()), 0, 0, int64(len(m.bytes))); err != nil {
		return fmt.Errorf("reserve %d bytes of %s: %w: give the data directory as much memory or set a smaller region", len(m.bytes), m.file.Name(), err)
	}
	return nil
}

func (m *mapping) close() error {
	var errs []error
	if m.bytes != nil {
		errs = append(errs, unix.Munmap(m.bytes))
	}
	if m.file != nil {
		errs = append(errs, m.file.Close())
	}
	*m = mapping{}
	return errors.Join(errs...)
}

// publish writes the header page, the magic last: from then on a restarted process finds the
// region.
func (r *region) publish() {
	b := r.header.encode()
	copy(r.data.bytes[8:], b[8:])
	magic := *(*uint64)(unsafe.Pointer(&b[0]))
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&r.data.bytes[0])), magic)
}

// noteShared notes in the header page, if there is one, whether the volume has another copy.
func (r *region) noteShared(on bool) {
	if r.shared == on {
		return
	}
	r.shared = on
	b := r.header.encode()
	if binary.LittleEndian.Uint64(r.data.bytes) == binary.LittleEndian.Uint64(b[:]) { // the magic
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&r.data.bytes[8])), *(*uint64)(unsafe.Pointer(&b[8])))
	}
}

// withdraw takes back what publish did.
func (r *region) withdraw() {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&r.data.bytes[0])), 0)
}

// prepare makes the region of a copy, which has the changes of a primary, one that can be served
// with that primary's ledger. It returns how many locks say REPAIR now. It can be repeated.
func (r *region) prepare(l *ledger.Ledger) (turned uint64, err error) {
	shape := r.shape()
	if shape.Incarnation = l.Shape().Incarnation; l.Shape() != shape {
		return 0, fmt.Errorf("the ledger of the copy is of another region: it has %+v, the region %+v; give all copies of a volume the same memory", l.Shape(), shape)
	}
	r.incarnation = shape.Incarnation
	clear(r.lockTable())
	turned = turnLocks(r.lockTable(), l)
	for _, s := range unrecorded(&r.header) {
		if s.First >= pageBytes {
			clear(r.data.bytes[s.First:s.End])
		}
	}
	r.publish()
	r.existed = true
	return turned, nil
}

// shape is what the ledger of the region is for.
func (r *region) shape() ledger.Shape {
	return ledger.Shape{Incarnation: r.incarnation, ChunkBytes: r.chunkBytes, Chunks: r.chunks(), Slots: superblockSlots, Locks: r.lockBytes / 2}
}

// copyShape is what a copy of the region must have as it has it.
func (r *region) copyShape() mirror.Shape {
	return mirror.Shape{Size: r.dataBytes, Chunk: r.chunkBytes, Locks: r.lockBytes, Slots: r.slots, Layout: regionVersion, Ledger: ledger.Version}
}

// memory returns the region as providers serve it.
func (r *region) memory() []verbs.Memory {
	return []verbs.Memory{
		{ID: verbs.RegionData, Bytes: r.data.bytes[:r.dataBytes], File: r.data.file},
		{ID: verbs.RegionLocks, Bytes: r.lockTable(), File: r.locks.file},
	}
}

// lockTable returns the lock region. Its mapping continues to the end of a page, which may be a
// huge one.
func (r *region) lockTable() []byte { return r.locks.bytes[:r.lockBytes] }

// wordsOf are those of a region.
func wordsOf(r *region) core.Words {
	return core.Words{
		Bytes: r.data.bytes,
		First: func(slot int) uint64 { return intentOffset(r.lockBytes, slot) },
		Slots: int(intentSlots(r.lockBytes)),
		Chunk: func(at uint64) uint32 { return r.chunkAt(at &^ (r.chunkBytes - 1)) },

		ChunkAt:    r.chunkOffset,
		ChunkBytes: r.chunkBytes,
	}
}

func (r *region) zeroChunk(number uint32) error {
	return r.zero(r.chunkOffset(number), r.chunkBytes)
}

// zeroPlace zeroes what an index has besides chunks. The lock table is not in the journal.
func (r *region) zeroPlace(slot int, firstLock, locks uint64) error {
	clear(r.lockTable()[2*firstLock : 2*(firstLock+locks)])
	return errors.Join(
		r.zero(superblockOffset(slot), superblockBytes),
		r.zero(repairOffset(firstLock), locks*repairBytes),
		r.zero(intentOffset(r.lockBytes, slot), intentSlots(r.lockBytes)*pool.IntentBytes),
	)
}

// close unmaps the region. The memory must not be used any more.
func (r *region) close() error { return errors.Join(r.data.close(), r.locks.close()) }

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }

// bootID identifies one run of this machine; zero if the system does not tell.
func bootID() (id [16]byte) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", ""))
	if err != nil || len(raw) != len(id) {
		return id
	}
	return [16]byte(raw)
}
