package verbs

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
)

// A Waiter is a goroutine that waits for copies, for one thing at a time.
type Waiter struct {
	event env.Event
	cut   atomic.Bool

	// guarded by the journal's mu
	need   uint64
	parked bool
}

// NewWaiter makes a waiter.
func (j *Journal) NewWaiter() *Waiter { return &Waiter{event: j.env.NewEvent()} }

// Cut ends the wait under way, and all later ones, soon. Any goroutine may call it.
func (w *Waiter) Cut() {
	w.cut.Store(true)
	w.event.Set()
}

// Pass waits for a time, and fails when the waiter is cut.
func (w *Waiter) Pass(d time.Duration) error {
	if w.failure() == nil {
		w.event.Wait(d) // it may end early: whoever woke it meant a wait that is over
	}
	return w.failure()
}

func (w *Waiter) failure() error {
	if w.cut.Load() {
		return fmt.Errorf("wait for the copy of this memory server: whoever waits was cut: %w", ErrClosed)
	}
	return nil
}

// Ready reports whether an answer that needs what lies up to a position may go out now.
func (j *Journal) Ready(p Position) bool {
	return uint64(p) <= j.all.Load() && (j.may == nil || j.may(p))
}

// Wait waits until an answer may go out that needs what lies up to a position, which is not beyond
// the end of the stream: also one that needs nothing. After an error it may not, ever. w is nil or
// waits.
func (j *Journal) Wait(w *Waiter, p Position) error {
	if j.Ready(p) {
		return nil
	}
	if w == nil {
		w = j.NewWaiter()
	}
	began := j.env.Now()
	defer func() {
		j.waits.Add(1)
		j.waited.Add(uint64(j.env.Now() - began))
	}()
	until := env.Deadline(j.env, WaitLimit)
	for pause := lookAgain; ; pause = min(2*pause, lookLast) {
		if err := j.reachBy(w, uint64(p), until); err != nil || j.Ready(p) {
			return err
		}
		w.event.Wait(pause)
		if err := w.failure(); err != nil {
			return err
		}
		if j.env.Now() >= until {
			return fmt.Errorf("this memory server was not permitted to answer for %v: its copy is silent, or another one took its place: %w", WaitLimit, ErrTimeout)
		}
	}
}

// Waited is how many answers had to wait (Wait), and how long all of them did.
func (j *Journal) Waited() (answers uint64, all time.Duration) {
	return j.waits.Load(), time.Duration(j.waited.Load())
}

// reach waits until all feeds that are waited for have what lies up to a position.
func (j *Journal) reach(w *Waiter, p uint64) error {
	if w == nil {
		w = j.NewWaiter()
	}
	return j.reachBy(w, p, env.Deadline(j.env, WaitLimit))
}

func (j *Journal) reachBy(w *Waiter, p uint64, until time.Duration) error {
	for p > j.all.Load() {
		if err := j.lacking(w, p, until); err != nil {
			return err
		}
	}
	return nil
}

// lacking waits for one of the feeds that lack something. What another one lacks is sent meanwhile.
func (j *Journal) lacking(w *Waiter, p uint64, until time.Duration) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var slow *Feed
	for _, f := range j.feeds {
		if f.awaited && !f.dropped && f.applied.Load() < p {
			if slow != nil {
				f.send()
			} else {
				slow = f
			}
		}
	}
	if slow == nil { // it is being dropped
		j.mu.Unlock()
		w.event.Wait(lookAgain)
		j.mu.Lock()
		return w.failure()
	}
	return slow.wait(w, p, until, forAnswers)
}

// Whom a wait for a feed is for.
type cause uint8

const (
	forAnswers cause = iota // it is over when nothing waits for the copy any more
	forJoin
	forOwner // it is over when the link breaks
)

// Wait waits until the copy has what lies up to a position, however often its link breaks. w is nil
// or waits.
func (f *Feed) Wait(w *Waiter, p Position) error {
	return f.waits(w, p, WaitLimit, forJoin)
}

// Follow is Wait that fails when there is no link.
func (f *Feed) Follow(w *Waiter, p Position, limit time.Duration) error {
	return f.waits(w, p, limit, forOwner)
}

func (f *Feed) waits(w *Waiter, p Position, limit time.Duration, why cause) error {
	j := f.journal
	if w == nil {
		w = j.NewWaiter()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return f.wait(w, uint64(p), env.Deadline(j.env, limit), why)
}

// wait waits until the copy has what lies up to p. The caller has mu, which is given up meanwhile.
func (f *Feed) wait(w *Waiter, p uint64, until time.Duration, why cause) error {
	defer f.handOver()
	j := f.journal
	for {
		switch {
		case f.applied.Load() >= p:
			return nil
		case f.err != nil:
			return f.err
		case f.dropped && why != forAnswers:
			return errDropped
		case f.dropped:
			return nil
		case f.link == nil && why == forOwner:
			return f.broken
		}
		if err := w.failure(); err != nil {
			return err
		}
		progress := f.send()
		switch {
		case f.applied.Load() >= p || f.err != nil:
			continue
		case f.link != nil && !f.taking:
			progress = f.take() || progress
		default:
			progress = f.park(w, p, until)
		}
		if !progress && j.env.Now() >= until {
			return f.late(p)
		}
	}
}

// late says that what is waited for did not come in time.
func (f *Feed) late(p uint64) error {
	silent := "the copy is silent"
	if f.link == nil {
		silent = f.broken.Error()
	}
	return fmt.Errorf("the copy of this memory server lacks %d bytes of what is waited for: %s: %w", p-f.applied.Load(), silent, ErrTimeout)
}

// park waits until somebody else has taken what w needs, or leaves it to w. False: until is over.
func (f *Feed) park(w *Waiter, p uint64, until time.Duration) bool {
	j := f.journal
	w.need, w.parked = p, true
	f.parked = append(f.parked, w)
	j.mu.Unlock()
	woken := w.event.Wait(env.Remaining(j.env, until))
	j.mu.Lock()
	if w.parked {
		w.parked = false
		f.parked = slices.DeleteFunc(f.parked, func(o *Waiter) bool { return o == w })
	}
	return woken
}
