//env:real files are of the machine

package persist

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// FS is the directory. Tests have one that crashes.
type FS interface {
	// List names the files that may be the store's.
	List() ([]string, error)
	// Create makes a file, empty, in the place of one of that name.
	Create(name string) (File, error)
	// Open opens a file. An error for which errors.Is(err, os.ErrNotExist): there is none.
	Open(name string) (File, error)
	// Rename puts a file in the place of another. Either name is there after a crash, until Sync.
	Rename(from, to string) error
	Remove(name string) error
	// Sync puts the names on disk.
	Sync() error
}

// File is a file of an FS.
type File interface {
	io.ReaderAt
	// WriteAt writes all of b or fails. It keeps nothing of b.
	WriteAt(b []byte, at int64) (int, error)
	// Sync puts what was written on disk (fdatasync). A failure may have lost it.
	Sync() error
	Size() (int64, error)
	Close() error
}

// ErrInUse is returned for a directory that another process uses.
var ErrInUse = errors.New("it is in use by another memory server: stop that one, or give this one a directory of its own")

// Files of the server beside those of the store have names that begin so.
const (
	beside    = "dmindex."
	guardName = beside + "guard"
)

// Directory is a directory of the machine, which only one process uses at a time.
type Directory struct {
	path  string
	guard *os.File
}

// lockAgain is how long after an attempt to lock a directory the next one is made.
const lockAgain = 20 * time.Millisecond

// OpenDirectory makes a directory if need be, and locks it until Close. A process that dies leaves
// it unlocked, but has it until the system has taken all of its memory back. So a lock that another
// process has is waited for, for at most limit; waits is called once if it is. Errors: ErrInUse.
func OpenDirectory(path string, limit time.Duration, waits func()) (*Directory, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("directory of persistent memory: %w", err)
	}
	guard, err := os.OpenFile(filepath.Join(path, guardName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("directory of persistent memory: %w", err)
	}
	if err := Lock(guard, limit, waits); err != nil {
		guard.Close()
		return nil, fmt.Errorf("lock the directory of persistent memory %s: %w", path, err)
	}
	return &Directory{path, guard}, nil
}

// Lock locks a file or directory (flock) until it is closed. A lock that another process has is
// waited for, for at most limit; waits is called once if it is. Errors: ErrInUse.
func Lock(f *os.File, limit time.Duration, waits func()) error {
	began := time.Now()
	for first := true; ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR): // by a signal: it is tried again as if it were locked
		case !errors.Is(err, unix.EWOULDBLOCK):
			return err
		}
		if time.Since(began) >= limit {
			return ErrInUse
		}
		if first {
			first = false
			waits()
		}
		time.Sleep(lockAgain)
	}
}

// Close unlocks the directory.
func (d *Directory) Close() error { return d.guard.Close() }

// List implements FS. A file system of its own may have a directory (lost+found).
func (d *Directory) List() (names []string, err error) {
	entries, err := os.ReadDir(d.path)
	for _, e := range entries {
		if !e.IsDir() && !strings.HasPrefix(e.Name(), beside) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// Create implements FS.
func (d *Directory) Create(name string) (File, error) {
	return osFile(os.OpenFile(filepath.Join(d.path, name), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600))
}

// Open implements FS.
func (d *Directory) Open(name string) (File, error) {
	return osFile(os.OpenFile(filepath.Join(d.path, name), os.O_RDWR, 0o600))
}

// Rename implements FS.
func (d *Directory) Rename(from, to string) error {
	return os.Rename(filepath.Join(d.path, from), filepath.Join(d.path, to))
}

// Remove implements FS.
func (d *Directory) Remove(name string) error { return os.Remove(filepath.Join(d.path, name)) }

// Sync implements FS.
func (d *Directory) Sync() error {
	f, err := os.Open(d.path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func osFile(f *os.File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return file{f}, nil
}

type file struct{ *os.File }

// Sync implements File.
func (f file) Sync() error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Size implements File.
func (f file) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Boot identifies one run of this machine; zero if the system does not tell.
func Boot() (id [16]byte) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err == nil {
		_, err = hex.Decode(id[:], []byte(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", "")))
	}
	if err != nil {
		return [16]byte{}
	}
	return id
}

// isNoSpace reports whether a write failed because there is no room, which may come back.
func isNoSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}
