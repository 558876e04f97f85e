package persist

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// open finds out which files there are, or makes the first ones.
func (s *Store) open() error {
	names, err := s.fs.List()
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, newSuffix) {
			if err := s.fs.Remove(name); err != nil {
				return err
			}
		}
	}
	f, err := s.fs.Open(volumeName)
	switch {
	case err == nil:
		return errors.Join(s.check(f), f.Close())
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	return s.create(names)
}

// check checks that the directory is the volume's.
func (s *Store) check(f File) error {
	h, err := readHead(f, magicVolume)
	if err != nil {
		return damaged(volumeName, err)
	}
	if h.volume != s.volume {
		return fmt.Errorf("the directory is of another volume: of %+v, and the server has %+v (numbers of bytes): give the server the same id and the same sizes as before, or another directory", h.volume, s.volume)
	}
	s.set = h.set
	return nil
}

// create makes the files of an empty memory. Earlier it may have been cut off: then there are some
// of them, without content.
func (s *Store) create(names []string) error {
	for _, name := range names {
		if name != numbered(logName, 0) && name != numbered(checkpointName, 0) && !strings.HasSuffix(name, newSuffix) {
			return fmt.Errorf("there is %q and no file %q, without which nobody knows what the directory is of: put that back, or give the server an empty directory", name, volumeName)
		}
	}
	if slices.Contains(names, numbered(logName, 0)) {
		if err := s.unused(numbered(logName, 0)); err != nil {
			return err
		}
	}
	binary.LittleEndian.PutUint64(s.set[:8], s.env.Uint64())
	binary.LittleEndian.PutUint64(s.set[8:], s.env.Uint64())
	h := head{set: s.set, number: uint64(Always), boot: s.options.Boot, volume: s.volume}
	log, err := s.make(numbered(logName, 0), h.append(nil, magicLog))
	if err != nil {
		return err
	}
	h.number = 0
	checkpoint, err := s.make(numbered(checkpointName, 0), (&ending{}).append(h.append(nil, magicCheckpoint), &s.set))
	if err != nil {
		return errors.Join(err, log.Close())
	}
	volume, err := s.make(volumeName, h.append(nil, magicVolume))
	if err != nil {
		return errors.Join(err, log.Close(), checkpoint.Close())
	}
	return errors.Join(log.Close(), checkpoint.Close(), volume.Close())
}

// unused returns an error if a log has content.
func (s *Store) unused(name string) error {
	f, err := s.fs.Open(name)
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err = errors.Join(err, f.Close()); err == nil && size > headBytes {
		err = fmt.Errorf("%q has %d bytes, and there is no file %q: put that back, or give the server an empty directory", name, size, volumeName)
	}
	return err
}

// readHead reads the head of a file.
func readHead(f File, magic string) (head, error) {
	b := make([]byte, headBytes)
	if n, err := f.ReadAt(b, 0); n < headBytes {
		return head{}, fmt.Errorf("it is too short: %w", err)
	}
	return decodeHead(b, magic)
}

// openPart opens a log or a checkpoint, which has to be of this directory.
func (s *Store) openPart(name, magic string) (File, head, error) {
	f, err := s.fs.Open(name)
	if err != nil {
		return nil, head{}, err
	}
	h, err := readHead(f, magic)
	if err == nil && (h.set != s.set || h.volume != s.volume) {
		err = errors.New("it is of another directory")
	}
	if err != nil {
		return nil, head{}, errors.Join(damaged(name, err), f.Close())
	}
	return f, h, nil
}

// noUse is what to do with a damaged directory.
const noUse = "the directory is damaged, and nothing of it is used: put its files back as they were, or give the server an empty directory and restore a backup"

// damaged says what is wrong with a file, and what to do.
func damaged(name string, err error) error {
	if errors.Is(err, errVersion) {
		return fmt.Errorf("file %q: %w", name, err)
	}
	return fmt.Errorf("file %q: %w: %s", name, err, noUse)
}
