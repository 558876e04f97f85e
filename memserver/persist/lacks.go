package persist

import (
	"errors"
	"fmt"
	"time"
)

// lacksLimit is how long a server that ends waits for its word to be on a disk that failed.
const lacksLimit = time.Second

// leaveWord leaves word for the next process that acknowledged changes may not be on disk. It waits
// for at most lacksLimit: the disk may hang, and another copy may wait for the end of this server.
func (s *Store) leaveWord() {
	over := s.env.NewEvent()
	s.env.Go("leave word", func() {
		if err := s.writeLacks(); err != nil {
			s.report(fmt.Errorf("the disk failed, and there is no word of it for the next start, which may lack what was acknowledged last: %w", err))
		}
		over.Set()
	})
	over.Wait(lacksLimit)
}

// writeLacks makes the file that says so.
func (s *Store) writeLacks() error {
	f, err := s.fs.Create(lacksName)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close(), s.fs.Sync())
}
