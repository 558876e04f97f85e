package ownership

import (
	"bytes"
	"sort"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
)

// In a design whose ranges have owners, a request may use a key only while this server's client
// serves it. The served keys are a table that is never changed, only replaced. A session belongs to
// the newest table from the moment when it is borrowed until it is returned. When all sessions of
// older tables have been returned, no request uses a key any more that only those tables have.

// Table is the keys that a client serves. It is immutable.
type Table struct {
	of    Opened           // the client that serves these keys
	spans []partition.Span // ascending, with gaps between them
	In    atomic.Int64     // sessions that belong to this table
	old   atomic.Bool      // there is a newer one
}

// spanOf returns the span that holds key, or, with below, the one that holds the keys right below
// it; the empty key is then the upper end of the key space.
func (t *Table) spanOf(key []byte, below bool) (partition.Span, bool) {
	return spanOf(t.spans, key, below)
}

// spanOf is span for ascending spans.
func spanOf(spans []partition.Span, key []byte, below bool) (partition.Span, bool) {
	i := len(spans)
	if !below || len(key) > 0 {
		i = sort.Search(len(spans), func(i int) bool {
			c := bytes.Compare(spans[i].Start, key)
			return c > 0 || below && c == 0
		})
	}
	if i--; i < 0 {
		return partition.Span{}, false
	}
	s := spans[i]
	switch end := s.End; {
	case len(end) == 0:
		return s, true
	case below:
		return s, len(key) > 0 && bytes.Compare(key, end) <= 0
	default:
		return s, bytes.Compare(key, end) < 0
	}
}

// Tables are the newest table, and the older ones to which sessions still belong.
type Tables struct {
	env    env.Env
	newest atomic.Pointer[Table]
	quiet  env.Event // set when the last session leaves an old table

	mu    env.Mutex
	older []*Table
}

// NewTables returns the tables of a server that serves nothing.
func NewTables(e env.Env) *Tables {
	t := &Tables{env: e, quiet: e.NewEvent(), mu: e.NewMutex()}
	t.newest.Store(&Table{})
	return t
}

// Enter adds a session to the newest table and returns the table.
func (t *Tables) Enter() *Table {
	for {
		s := t.newest.Load()
		s.In.Add(1)
		if t.newest.Load() == s { // a later Replace sees this session
			return s
		}
		t.Leave(s)
	}
}

// Leave removes a session from a table that Enter returned.
func (t *Tables) Leave(s *Table) {
	if s.In.Add(-1) == 0 && s.old.Load() {
		t.quiet.Set()
	}
}

// Replace makes the spans of a client the newest table.
func (t *Tables) Replace(of Opened, spans []partition.Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.newest.Swap(&Table{of: of, spans: spans})
	before.old.Store(true)
	t.older = append(t.older, before)
	t.forgetOld()
}

// countBusy counts the sessions of tables that are not the newest.
func (t *Tables) countBusy() (n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.forgetOld()
}

// forgetOld forgets old tables without sessions, and counts the sessions of the others. Called
// under mu.
func (t *Tables) forgetOld() (n int64) {
	kept := t.older[:0]
	for _, s := range t.older {
		if in := s.In.Load(); in > 0 {
			n += in
			kept = append(kept, s)
		}
	}
	clear(t.older[len(kept):])
	t.older = kept
	return n
}

// quietLooks is how often awaitQuiet counts again without a notification.
const quietLooks = 250 * time.Millisecond

// awaitQuiet waits until no session belongs to an older table, for at most limit or until stop
// returns true. One goroutine at a time may wait.
func (t *Tables) awaitQuiet(limit time.Duration, stop func() bool) bool {
	for deadline := env.Deadline(t.env, limit); ; {
		if t.countBusy() == 0 {
			return true
		}
		left := env.Remaining(t.env, deadline)
		if left == 0 || stop() {
			return false
		}
		t.quiet.Wait(min(left, quietLooks))
	}
}

// Serves is span for a session of a client. A table serves nothing for sessions of other clients.
func (t *Table) Serves(of Opened, key []byte, below bool) (partition.Span, bool) {
	if t.of != of {
		return partition.Span{}, false
	}
	return t.spanOf(key, below)
}

// Replaced reports whether there is a newer table, so that a handover may wait for this one.
func (t *Table) Replaced() bool { return t.old.Load() }

// Current returns the newest table, without entering it.
func (t *Tables) Current() *Table { return t.newest.Load() }
