package persist

import (
	"errors"
	"fmt"
	"os"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// BeginCopy lets the log take what a copy applies, of a stream from start on (Take). The copy has
// no memory and no ledger, and the directory neither: it was recovered. Begin ends this.
func (s *Store) BeginCopy(start verbs.Position) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := head{set: s.set, position: s.end, number: s.number + 1, boot: s.options.Boot, volume: s.volume}
	empty := ending{of: s.end, needs: s.end, part: true}
	f, err := s.make(numbered(checkpointName, h.number), empty.append(h.append(nil, magicCheckpoint), &s.set))
	if err == nil {
		s.number = h.number
		err = f.Close()
	}
	if err != nil {
		return fmt.Errorf("persistent memory: begin the files of a copy: %w", err)
	}
	return s.beginLocked(start)
}

// Take writes what a copy applies next: whole items that lie at a position of the stream. What of
// that it has already it passes over. False without an error: there is no room, or the log is too
// long; nothing was taken, and it may be offered again.
func (s *Store) Take(position verbs.Position, b []byte) (took bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Err(); err != nil {
		return false, err
	}
	defer func() { s.waits.Store(!took && err == nil) }()
	at := s.at.Load()
	has := at - (s.base + uint64(position))
	if has > at {
		return false, s.fail(fmt.Errorf("changes from %d on, and the log ends %d before", position, -has))
	}
	if b = b[min(has, uint64(len(b))):]; len(b) == 0 {
		return true, nil
	}
	if at+uint64(len(b)) > s.start.Load()+s.options.LogBytes {
		return false, nil
	}
	// All of it counts, or nothing: the log may go on in another file where an item ends. What was
	// written of it is written again at the same place.
	offset := s.offset
	for done := 0; done < len(b); {
		part := b[done:min(done+maxFrame, len(b))]
		if wrote, err := s.writeLocked(at+uint64(done), part); !wrote {
			s.offset = offset
			return false, err
		}
		done += len(part)
	}
	s.at.Store(at + uint64(len(b)))
	return true, nil
}

// SyncTaken returns when what a copy has taken may be acknowledged: it is on disk where answers
// wait for the disk, or, in any mode, if changes of the ledger are among it.
func (s *Store) SyncTaken(ledger bool) error {
	if s.options.Sync != Always && !ledger {
		return s.Err()
	}
	return s.Flush()
}

// Taken is up to where the stream was written.
func (s *Store) Taken() verbs.Position { return verbs.Position(s.at.Load() - s.base) }

// Made reports whether a directory is one of a Store.
func Made(fs FS) (bool, error) {
	f, err := fs.Open(volumeName)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("persistent memory: %w", err)
	}
	return true, f.Close()
}

// Discard removes what a directory has, which counts for nothing. The name of what it is of is
// removed last, so that after a part of it the rest can be removed too.
func Discard(fs FS) error {
	names, err := fs.List()
	if err != nil {
		return fmt.Errorf("persistent memory: %w", err)
	}
	was := false
	for _, name := range names {
		_, log := numberOf(name, logName)
		_, checkpoint := numberOf(name, checkpointName)
		if log || checkpoint || name == lacksName {
			err = errors.Join(err, fs.Remove(name))
		}
		was = was || name == volumeName
	}
	if err == nil && was {
		err = fs.Remove(volumeName)
	}
	if err = errors.Join(err, fs.Sync()); err != nil {
		return fmt.Errorf("persistent memory: remove what counts for nothing: %w", err)
	}
	return nil
}
