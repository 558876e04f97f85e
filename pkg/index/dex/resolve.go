package dex

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// inFrame finds the frame of the leaf that holds key, which it fetches if it has none, and has do
// use it. Unless do returns Done or an error, it is called again, perhaps for another leaf.
func (s *session) inFrame(key []byte, do func(f *frame.Frame, p *btree.Path) (frame.State, error)) error {
	p, err := s.b.Descend(key)
	if err != nil {
		return err
	}
	for hops := 0; ; {
		f := s.x.cache.Locate(&p)
		if f == nil {
			var l slotted.Leaf
			if _, _, err := s.fetch(&p, &l, key, &hops, true); err != nil {
				return err
			}
			continue
		}
		st, err := do(f, &p)
		switch {
		case err != nil || st == frame.Done:
			return err
		case st == frame.Evicted:
			p, err = s.b.Descend(key)
		default:
			err = s.resolve(st, &p, key, &hops)
		}
		if err != nil {
			return err
		}
	}
}

// holds reports whether f has the leaf at a, and that holds key: Done. Then v is its view. Without
// the lock of f that is a guess.
func (s *session) holds(f *frame.Frame, a pool.Addr, key []byte, v *frame.View) (frame.State, error) {
	switch numbers := s.x.lay.Uint64; {
	case f.Addr() != a:
		return frame.Evicted, nil
	case !f.Open(v):
		return frame.Busy, fmt.Errorf("what is kept of leaf %v is no leaf: %w", a, index.ErrFormat)
	case f.Above(v, key, numbers):
		return frame.AboveRange, nil
	case f.Below(v, key, numbers):
		return frame.BelowRange, nil
	}
	return frame.Done, nil
}

// encloses is holds, if no view is needed, and an error is somebody else's to find.
func (s *session) encloses(f *frame.Frame, a pool.Addr, key []byte) bool {
	var v frame.View
	st, _ := s.holds(f, a, key, &v)
	return st == frame.Done
}

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
