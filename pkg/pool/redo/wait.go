package redo

import (
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
)

// wait waits to be woken, or for a batch that nobody attends, and that comes before position. 0 =
// for any batch. Called under mu.
func (a *Appender) wait(position uint64) error {
	l := a.log
	limit := a.remaining()
	if n := l.abandoned(position); n != nil {
		n.attended = true
		l.left--
		l.mu.Unlock()
		return a.attend(n)
	}
	a.until = position
	l.waiting = append(l.waiting, a)
	l.mu.Unlock()
	woken := a.event.Wait(limit)
	l.mu.Lock()
	if !woken {
		for i, w := range l.waiting {
			if w == a {
				l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
				return errLate
			}
		}
		a.event.Wait(0) // it was woken meanwhile
		l.wakeWaiters() // perhaps it was its turn to post, or to attend
		return errLate
	}
	if l.left > 0 {
		l.wakeWaiters() // it may need no batch any more
	}
	return l.failed
}

var errLate = fmt.Errorf("wait for the redo log: %w", pool.ErrTimeout)

// remaining is how long the operation may still wait. Its clock starts here.
func (a *Appender) remaining() time.Duration {
	if a.within != nil {
		return a.within.Remaining()
	}
	if !a.waits {
		a.deadline, a.waits = env.Deadline(a.log.env, a.limit), true
		return a.limit
	}
	return env.Remaining(a.log.env, a.deadline)
}

// attend waits for a batch under way, as its attendant, within the operation's limit. Called
// without mu, which it returns with. The first look needs no clock, and on shared memory it is the
// last.
func (a *Appender) attend(n *lane) error {
	l := a.log
	over, err := n.s.AwaitFor(0)
	if !over {
		over, err = n.s.AwaitFor(a.remaining())
	}
	l.mu.Lock()
	if over {
		l.batchEnded(n, err)
		return l.failed
	}
	n.attended = false
	l.left++
	l.wakeWaiters()
	return errLate
}

// abandoned is the first batch that begins before position and that nobody attends; position 0 =
// wherever it begins. nil = there is none. Called under mu.
func (l *Log) abandoned(position uint64) *lane {
	if l.left == 0 {
		return nil
	}
	for _, n := range l.underWay {
		if !n.attended && !n.over && (position == 0 || n.start < position) {
			return n
		}
	}
	return nil
}

// wakeWaiters wakes those whose records are durable, one who posts the batch that is open, if that
// can be, and one who attends a batch that was left. Called under mu.
func (l *Log) wakeWaiters() {
	if len(l.waiting) == 0 {
		return
	}
	kept, posts, attends := l.waiting[:0], false, false
	for _, w := range l.waiting {
		if l.failed == nil && w.until > l.durable.Load() {
			switch {
			case !attends && l.abandoned(w.until) != nil:
				attends = true
			case !posts && w.until > l.start && l.mayPost():
				posts = true
			default:
				kept = append(kept, w)
				continue
			}
		}
		w.event.Set()
	}
	clear(l.waiting[len(kept):])
	l.waiting = kept
}
