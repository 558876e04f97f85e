package ownership

import (
	"bytes"
	"sort"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
)

// With a design whose ranges have owners, a request may use a key only while this server's client
// serves it. Which keys these are is a table that is never changed, only replaced; whoever borrows
// a session comes in by the newest one and stays in it until the session is given back. A key that
// is in no newer table is used by nobody any more once all are gone who came in by an older one.

// Table is such a table.
type Table struct {
	of    Opened           // the client that serves these keys
	spans []partition.Span // ascending, with gaps between them
	In    atomic.Int64     // sessions that came in by this table
	old   atomic.Bool      // there is a newer one
}

// span is the one that holds key, or with below, the keys right below it, where the empty key is
// the upper end of the key space.
func (t *Table) span(key []byte, below bool) (partition.Span, bool) {
	return spanOf(t.spans, key, below)
}

// spanOf is that one of ascending spans.
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

// Tables are the newest table and those that somebody came in by before.
type Tables struct {
	env    env.Env
	newest atomic.Pointer[Table]
	quiet  env.Event // set when the last one leaves an old table

	mu    env.Mutex
	older []*Table
}

// NewTables are of a server that serves nothing.
func NewTables(e env.Env) *Tables {
	t := &Tables{env: e, quiet: e.NewEvent(), mu: e.NewMutex()}
	t.newest.Store(&Table{})
	return t
}

// Enter comes in by the newest table.
func (t *Tables) Enter() *Table {
	for {
		s := t.newest.Load()
		s.In.Add(1)
		if t.newest.Load() == s { // whoever replaces it from now on sees us
			return s
		}
		t.Leave(s)
	}
}

// Leave leaves a table that Enter returned.
func (t *Tables) Leave(s *Table) {
	if s.In.Add(-1) == 0 && s.old.Load() {
		t.quiet.Set()
	}
}

// Replace makes spans, of a client, the newest table.
func (t *Tables) Replace(of Opened, spans []partition.Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.newest.Swap(&Table{of: of, spans: spans})
	before.old.Store(true)
	t.older = append(t.older, before)
	t.look()
}

// busy is how many are in by tables that are not the newest.
func (t *Tables) busy() (n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.look()
}

// look forgets the old tables that nobody is in by, and counts who is in by the others. Called
// under mu.
func (t *Tables) look() (n int64) {
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

// quietLooks is how often the tables are looked at though nobody said that they are quiet.
const quietLooks = 250 * time.Millisecond

// awaitQuiet waits until everybody is in by the newest table, or gone, for at most limit or until
// stop says so. One goroutine at a time waits.
func (t *Tables) awaitQuiet(limit time.Duration, stop func() bool) bool {
	for deadline := env.Deadline(t.env, limit); ; {
		if t.busy() == 0 {
			return true
		}
		left := env.Remaining(t.env, deadline)
		if left == 0 || stop() {
			return false
		}
		t.quiet.Wait(min(left, quietLooks))
	}
}

// Serves is span for a session of a client: nothing is served for that of another one.
func (t *Table) Serves(of Opened, key []byte, below bool) (partition.Span, bool) {
	if t.of != of {
		return partition.Span{}, false
	}
	return t.span(key, below)
}

// Replaced reports whether there is a newer table, so that somebody may wait for this one.
func (t *Table) Replaced() bool { return t.old.Load() }

// Current is the newest table, for a look without coming in.
func (t *Tables) Current() *Table { return t.newest.Load() }
