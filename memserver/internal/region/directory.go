package region

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Files of a data directory.
const (
	DataFile  = "dmindex.region" // the data region
	LocksFile = "dmindex.locks"  // the lock region
	guardFile = "dmindex.guard"  // locked (flock) by the process that uses the directory
)

// Directory is a place for files that only one process uses at a time.
type Directory struct {
	path     string
	guard    *os.File
	PageSize uint64 // of its file system: larger than PageBytes on a hugetlbfs
	Huge     bool   // it is a hugetlbfs: files can be mapped but not written
	Volatile bool   // its content is in memory: tmpfs or hugetlbfs
}

// OpenDirectory creates the directory if need be, and locks it until close. A process that dies
// leaves it unlocked.
func OpenDirectory(path string) (*Directory, error) {
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
	d := &Directory{path: path, guard: guard, PageSize: PageBytes}
	switch uint32(fs.Type) {
	case unix.HUGETLBFS_MAGIC:
		d.Huge, d.Volatile, d.PageSize = true, true, uint64(fs.Bsize)
	case unix.TMPFS_MAGIC:
		d.Volatile = true
	}
	return d, nil
}

func (d *Directory) Close() error { return d.guard.Close() }

// HasRegion reports whether an earlier process left a region, or it cannot be told.
func (d *Directory) HasRegion() bool {
	info, err := os.Stat(filepath.Join(d.path, DataFile))
	return err == nil && info.Size() > 0 || err != nil && !errors.Is(err, os.ErrNotExist)
}
