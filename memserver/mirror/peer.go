package mirror

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// peer is a process that a primary sends changes to, and asks for permission. Three goroutines:
//
//	stream      begins the feed, connects it as often as its link breaks, and drops it at the end
//	join        walks the memory, and lets answers wait for the copy when it has that
//	permission  asks
//
// A copy that answers do not wait for is dropped (Member.Drop) if it is not reached for Limit, or
// its feed is given up. One that they wait for stays until the next view.
type peer struct {
	*Primary
	volumes.Target

	waiter, walker *verbs.Waiter
	feed           atomic.Pointer[verbs.Feed]
	waits          atomic.Bool // answers wait for the copy
	late           lateness    // of the goroutine that drives it
	unmarked       bool        // mark failed; of the goroutine that joins it
}

const (
	firstPause = 10 * time.Millisecond // between attempts
	lastPause  = volumes.AskInterval
	askAgain   = 20 * time.Millisecond // of the member, to wait for the copy
)

// isWanted reports whether the peer is still one that the member wants.
func (k *peer) isWanted() bool {
	k.halting.Lock()
	defer k.halting.Unlock()
	return slices.Contains(k.peers, k)
}

func (k *peer) report(err error) {
	if k.Report != nil && err != nil && k.isWanted() {
		k.Report(k.Proc, err)
	}
}

func (k *peer) stream() {
	f := k.begin()
	if f == nil {
		return
	}
	defer f.Drop()
	reached, walks := k.Env.Now(), false
	for pause := firstPause; k.isWanted(); pause = min(2*pause, lastPause) {
		err := f.Err()
		if err == nil {
			err = k.connect(f)
		}
		if err == nil {
			if k.Report != nil {
				k.Report(k.Proc, nil)
			}
			if !walks && k.Join != 0 {
				walks = true
				k.running.Go("join", func() { k.join(f) })
			}
			err = k.drive(f)
			reached, pause = k.Env.Now(), firstPause
		}
		k.report(err)
		if f.Err() != nil || k.Env.Now()-reached >= k.Limit {
			k.Member.Drop(k.Target)
		}
		k.Env.Sleep(pause)
	}
}

// begin begins the feed; nil = the peer is none any more. Requests of before that do not end within
// Limit end the join (Member.Drop). A backup that gets nothing is missed, and the next view ends
// this.
func (k *peer) begin() *verbs.Feed {
	began := k.Env.Now()
	for pause := firstPause; k.isWanted(); pause = min(2*pause, lastPause) {
		f, err := k.Journal.Feed(k.Settle, func(p verbs.Position) { k.Member.Acked(k.Proc, uint64(p)) })
		if err == nil {
			k.feed.Store(f)
			return f
		}
		k.report(err)
		if k.Env.Now()-began >= k.Limit {
			k.Member.Drop(k.Target)
		}
		k.Env.Sleep(pause)
	}
	return nil
}

func (k *peer) connect(f *verbs.Feed) error {
	c, err := k.Dial(k.Proc)
	if err != nil {
		return err
	}
	h := k.hello(k.Target)
	h.Start = f.Start()
	s, from, err := NewSource(k.Env, c, h, k.Limit)
	if err != nil {
		return err
	}
	return f.Connect(s, from)
}

// drive keeps the stream going until its link breaks: all that answers do not wait for, and signs
// of life.
func (k *peer) drive(f *verbs.Feed) error {
	last, due := f.Applied(), k.Env.Now()+volumes.AskInterval
	for k.isWanted() {
		pause := lookEvery
		var err error
		k.Member.Late(k.Proc, k.late.update(f.Applied(), k.Journal.Last(), k.Env.Now()))
		switch now := k.Env.Now(); {
		case now >= due:
			var p verbs.Position
			if f.Applied() == last {
				if p, err = k.Journal.Mark(0); err == nil {
					err = f.Follow(k.waiter, p, volumes.AskInterval) // no longer: see Late
				}
			}
			last, due = f.Applied(), now+volumes.AskInterval
		case !k.waits.Load():
			pause = caughtUp
			err = f.Follow(k.waiter, k.Journal.Last(), volumes.AskInterval)
		}
		if !f.Connected() || err != nil && !errors.Is(err, verbs.ErrTimeout) && !errors.Is(err, verbs.ErrTooMany) {
			return err
		}
		k.Env.Sleep(pause)
	}
	return nil
}

// lateness is how long a copy has lacked a change.
type lateness struct {
	at    verbs.Position // the copy had less when this was looked at
	since time.Duration  // which was then
}

// update returns for how long the copy has lacked something, at least.
func (l *lateness) update(applied, last verbs.Position, now time.Duration) time.Duration {
	if applied >= l.at {
		l.at, l.since = last, now
	}
	if applied >= l.at {
		return 0
	}
	return now - l.since
}

func (k *peer) join(f *verbs.Feed) {
	whole, err := k.Walk(f, k.walker)
	if err != nil {
		k.report(err)
		k.Member.Drop(k.Target)
		return
	}
	for k.isWanted() && k.Member.WaitFor(k.Proc, uint64(whole), func() uint64 { return k.mark(f) }) != nil {
		if k.unmarked {
			k.Member.Drop(k.Target)
			return
		}
		k.Env.Sleep(askAgain)
	}
}

// mark lets answers wait for the copy, and records that in the stream. If that fails nothing was
// promised, and the copy is dropped.
func (k *peer) mark(f *verbs.Feed) uint64 {
	err := f.Await()
	if err == nil {
		k.waits.Store(true)
		var p verbs.Position
		if p, err = k.Journal.Mark(k.Join); err == nil {
			return uint64(p)
		}
	}
	k.unmarked = true
	k.report(err)
	return 0
}

func (k *peer) permission() {
	for pause := firstPause; k.isWanted(); pause = min(2*pause, lastPause) {
		a, err := k.asker(k.Target, k.Limit)
		if err == nil {
			for err == nil && k.isWanted() {
				if err = k.askOnce(a); err == nil {
					pause = firstPause
				}
			}
			a.Close()
		}
		k.report(err)
		k.Env.Sleep(pause)
	}
}

// askOnce asks once, and waits until it is time to ask again.
func (k *peer) askOnce(a *Asker) error {
	r, ok := k.Member.Ask()
	if ok {
		granted, err := a.Ask(r.Turn, askLimit)
		if err != nil {
			return err
		}
		if granted {
			k.Member.Permitted(k.Proc, r)
		}
	}
	k.Env.Sleep(volumes.AskInterval)
	return nil
}
