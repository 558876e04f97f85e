package dex

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// resolve continues after a frame could not be used. Then p leads elsewhere, or the same may be
// tried again.
func (s *session) resolve(st frame.State, p *btree.Path, key []byte, hops *int) error {
	switch st {
	case frame.AboveRange:
		var l slotted.Leaf
		kept, err := s.x.Copy(&s.b.Session, p.Addr(), s.b.Staging())
		if err != nil || !kept {
			return err
		}
		_, err = s.b.Judge(p, &l, key, s.b.Staging(), hops)
		return err
	case logFull:
		s.x.cleaner.wake.Set()
		return s.b.Retry()
	case logBusy:
		return s.awaitLog()
	case frame.BelowRange:
		return s.b.Misled(p, key, hops)
	case frame.Evicted:
		return nil
	}
	return s.b.Retry()
}

// awaitLog waits until the session's record needs no wait for the log.
func (s *session) awaitLog() error { return s.awaitLogFor(len(s.record)) }

// awaitLogFor waits until a record of so many bytes needs no wait for the log.
func (s *session) awaitLogFor(bytes int) error {
	err := s.log.Room(bytes, s.b.PS.Remaining())
	if err == nil {
		err = s.b.PS.Overdue()
	} else if !errors.Is(err, pool.ErrTimeout) {
		return s.x.condemn(err)
	}
	return op.Failure(err, false)
}
