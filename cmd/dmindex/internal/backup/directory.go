package backup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"
)

// Directory is a Store of files in a folder, such as a mounted volume. It touches nothing outside
// of the folder, links included.
//
// An artifact is written beside its place, made durable, and then linked to its place, so that of
// two attempts at the same name the second one fails, and cannot replace what the first one
// reported. File systems without links have it renamed instead. A process that dies leaves the file
// beside it, which the next attempt deletes; what the last attempt at a name left is deleted by
// attempts at other names in the same folder, once nobody has written to it for a day.
type Directory struct{ root *os.Root }

// OpenDirectory opens a folder that exists.
func OpenDirectory(dir string) (*Directory, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the folder of backups: %w", err)
	}
	return &Directory{root}, nil
}

// Close closes the folder.
func (d *Directory) Close() error { return d.root.Close() }

// unfinished is between the name of an artifact and the rest of that of a file beside it.
const unfinished = ".unfinished-"

// abandoned is after how long without a write an unfinished file is nobody's any more. An attempt
// writes all the time, and an index that does not answer for so long has made it fail.
const abandoned = 24 * time.Hour

// Create is Store's.
func (d *Directory) Create(_ context.Context, name string, write func(io.Writer) error) (err error) {
	if err := d.root.MkdirAll(path.Dir(name), 0o770); err != nil {
		return err
	}
	if err := d.clean(name); err != nil {
		return err
	}
	beside := name + unfinished + rand.Text()
	f, err := d.root.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return err
	}
	defer func() {
		if gone := d.root.Remove(beside); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}()
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	err = d.root.Link(beside, name)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.ENOSYS) {
		err = d.root.Rename(beside, name)
	}
	if err != nil {
		return err
	}
	return d.sync(path.Dir(name))
}

// sync makes the names in a folder durable, and those of the folders above it.
func (d *Directory) sync(dir string) error {
	for {
		f, err := d.root.Open(dir)
		if err != nil {
			return err
		}
		// Some network file systems cannot sync a folder: there its names are durable at once.
		if err = f.Sync(); errors.Is(err, syscall.EINVAL) {
			err = nil
		}
		if err = errors.Join(err, f.Close()); err != nil || dir == "." {
			return err
		}
		dir = path.Dir(dir)
	}
}

// Open is Store's.
func (d *Directory) Open(_ context.Context, name string) (io.ReadCloser, error) {
	f, err := d.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrNoArtifact, err)
	}
	return f, err
}

// Delete is Store's. Folders stay.
func (d *Directory) Delete(_ context.Context, name string) error {
	if err := d.clean(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := d.root.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.sync(path.Dir(name))
}

// clean deletes what unfinished attempts left beside an artifact, and what others abandoned.
func (d *Directory) clean(name string) error {
	entries, err := fs.ReadDir(d.root.FS(), path.Dir(name))
	if err != nil {
		return err
	}
	for _, e := range entries {
		ours := strings.HasPrefix(e.Name(), path.Base(name)+unfinished)
		if !ours && !isAbandoned(e) {
			continue
		}
		err := d.root.Remove(path.Join(path.Dir(name), e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && ours {
			return err
		}
	}
	return nil
}

// isAbandoned reports whether a file was left by an attempt at any artifact that is long over.
func isAbandoned(e fs.DirEntry) bool {
	if !strings.Contains(e.Name(), ".dump"+unfinished) || !e.Type().IsRegular() {
		return false
	}
	info, err := e.Info()
	return err == nil && time.Since(info.ModTime()) > abandoned
}
