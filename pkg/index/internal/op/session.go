package op

import (
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// Methods that the session of every design has: an Op is in it, and these with it.

// SetLimit implements index.Session.
func (o *Op) SetLimit(limit time.Duration) { o.PS.SetLimit(limit) }

// Counters implements index.Session.
func (o *Op) Counters() verbs.Counters { return o.PS.Counters() }

// Close implements index.Session: it ends what Delegate and Sessions.Add began, and the session of
// the pool. A second one does nothing.
func (o *Op) Close() error {
	if o.closed {
		return nil
	}
	o.closed = true
	o.Leave()
	o.sessions.Remove(o)
	return o.PS.Close()
}

// Direct is the part of sessions whose changes are durable when they return, and need no
// preparation: a change READs its leaf in the list that locks it, and keeps nothing of it.
type Direct struct{}

// Prepare implements index.Session.
func (Direct) Prepare(_, _ [][]byte) error { return nil }

// Unprepared implements index.Unprepared.
func (Direct) Unprepared() {}

// Defer implements index.Session.
func (Direct) Defer(bool) {}

// Position implements index.Session.
func (Direct) Position() uint64 { return 0 }

// Durable implements index.Session.
func (Direct) Durable(uint64) error { return nil }
