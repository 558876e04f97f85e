package region

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mapping is a file and its pages, which are shared with other mappings of it.
type mapping struct {
	file  *os.File
	bytes []byte
}

func (r *Region) openFiles(d *Directory, want Header, as Found, log *slog.Logger) error {
	dataPath, locksPath := filepath.Join(d.path, DataFile), filepath.Join(d.path, LocksFile)
	var err error
	if r.data.file, err = os.OpenFile(dataPath, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return fmt.Errorf("open the region: %w", err)
	}
	if r.locks.file, err = os.OpenFile(locksPath, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return fmt.Errorf("open the lock table: %w", err)
	}
	dataBytes, lockBytes := roundUp(want.DataBytes, d.PageSize), roundUp(want.LockBytes, d.PageSize)
	if as == AsTaken {
		r.Existed = true
		return errors.Join(hasSize(r.data.file, dataBytes), hasSize(r.locks.file, lockBytes))
	}
	found, err := readHeader(r.data.file, d.PageSize)
	if as != AsFound {
		err = errForeign
	}
	if err == nil {
		err = found.sameShape(&want)
	}
	if err == nil && found.Boot != want.Boot && found.Boot != [16]byte{} && want.Boot != [16]byte{} {
		log.Warn("the machine was restarted since the region was written: its content is lost", "file", dataPath, "incarnation", found.Incarnation)
		err = errForeign
	}
	switch {
	case errors.Is(err, errForeign):
		r.Incarnation = newIncarnation()
		if err := resize(r.data.file, dataBytes); err != nil {
			return err
		}
		return resize(r.locks.file, lockBytes)
	case err != nil:
		return fmt.Errorf("region %s: %w", dataPath, err)
	}
	r.Header, r.Existed = found, true
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
// Decode.
func readHeader(f *os.File, pageSize uint64) (Header, error) {
	info, err := f.Stat()
	if err != nil {
		return Header{}, err
	}
	if uint64(info.Size()) < pageSize {
		return Header{}, errForeign
	}
	page, err := unix.Mmap(int(f.Fd()), 0, int(pageSize), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return Header{}, fmt.Errorf("map the header page: %w", err)
	}
	defer unix.Munmap(page)
	return Decode(page)
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
