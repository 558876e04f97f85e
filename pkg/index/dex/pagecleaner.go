package dex

import (
	"errors"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// pageCleaner is the goroutine that writes leaves back when the log is half full, until it is a
// quarter full: the leaves with the oldest records first, many in a round trip.
type pageCleaner struct {
	x       *dex
	s       *session
	many    flusher
	oldest  []*frame.Frame
	wake    env.Event
	ended   env.Event
	mu      env.Mutex
	stopped bool // guarded by mu
}

func (w *pageCleaner) start(x *dex) (err error) {
	w.x, w.wake, w.ended, w.mu = x, x.env.NewEvent(), x.env.NewEvent(), x.env.NewMutex()
	if w.s, err = x.newSession(); err != nil {
		return err
	}
	if err := w.many.start(w.s); err != nil {
		return errors.Join(err, w.s.Close())
	}
	w.oldest = make([]*frame.Frame, 0, len(w.many.buffers))
	x.log.WakeAtHalf(w.wake)
	x.env.Go("write leaves back", w.run)
	return nil
}

// cleanerLooks is how often the page cleaner checks the log without a notification.
const cleanerLooks = 100 * time.Millisecond

// run ends when the index is closed, or with the client: a log that nobody makes room in would let
// every later change time out.
func (w *pageCleaner) run() {
	defer w.ended.Set()
	for {
		w.wake.Wait(cleanerLooks)
		if w.isStopped() {
			return
		}
		if err := w.makeRoom(); err != nil {
			_ = w.x.condemn(fmt.Errorf("write leaves back to make room in the redo log: %w", err))
			return
		}
	}
}

func (w *pageCleaner) isStopped() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopped
}

// makeRoom gives back what changes have replaced, and writes leaves back if the log is half full.
// Where a wait takes too long it is tried again at the next look. After an error its sessions
// cannot be used any more, or the log.
func (w *pageCleaner) makeRoom() error {
	size := uint64(w.x.log.Ref().Bytes)
	w.s.b.Begin()
	defer w.s.b.End()
	if err := w.s.retire(1); err != nil {
		return err
	}
	if w.x.wal.Truncate(); w.x.log.Used() < size/2 {
		return nil
	}
	for left := true; left && w.x.log.Used() > size/4 && !w.isStopped(); w.x.wal.Truncate() {
		var err error
		if left, err = w.some(); errors.Is(err, pool.ErrTimeout) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// some writes the leaves with the oldest records back. It returns false if there are none.
func (w *pageCleaner) some() (left bool, err error) {
	w.oldest = w.x.wal.Oldest(w.oldest[:0])
	if len(w.oldest) == 0 {
		return false, nil
	}
	w.s.b.Resume() // epochs need not wait for all of it
	// Readers of these leaves wait while they are locked. So most of the wait for the log, if not
	// all of it, comes before.
	upTo := uint64(0)
	for _, f := range w.oldest {
		upTo = max(upTo, f.PageLSN())
	}
	if err := w.s.log.Wait(upTo, w.s.limit); err != nil {
		return true, op.Failure(err, false)
	}
	before := w.many.written
	for _, f := range w.oldest {
		if !f.TryLock() {
			continue // a session changes it: it is there the next time
		}
		if err := w.many.add(f); err != nil {
			return true, err
		}
	}
	err = w.many.post()
	if err == nil && w.many.written == before {
		err = w.s.b.Retry()
	}
	return true, err
}

func (w *pageCleaner) stop() error {
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	w.wake.Set()
	if !w.ended.Wait(stopWaits) {
		return fmt.Errorf("the goroutine that writes leaves back did not end within %v", stopWaits)
	}
	return errors.Join(w.many.ps.Close(), w.s.Close())
}

const stopWaits = 30 * time.Second
