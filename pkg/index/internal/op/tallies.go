package op

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
)

// Tallies count what a session does. Hits and Misses are of the index cache.
type Tallies struct{ Operations, Retries, Hits, Misses uint64 }

// Add adds o to t.
func (t *Tallies) Add(o Tallies) {
	t.Operations += o.Operations
	t.Retries += o.Retries
	t.Hits += o.Hits
	t.Misses += o.Misses
}

// shownTallies are a copy that other goroutines may read. It is renewed every showEvery operations.
type shownTallies struct{ operations, retries, hits, misses atomic.Uint64 }

const showEvery = 64

func (t *shownTallies) store(c Tallies) {
	t.operations.Store(c.Operations)
	t.retries.Store(c.Retries)
	t.hits.Store(c.Hits)
	t.misses.Store(c.Misses)
}

func (t *shownTallies) load() Tallies {
	return Tallies{t.operations.Load(), t.retries.Load(), t.hits.Load(), t.misses.Load()}
}

// Counted counts an operation. Begin calls it.
func (o *Op) Counted() {
	if o.Count.Operations++; o.Count.Operations%showEvery == 0 {
		o.shown.store(o.Count)
	}
}

// Sessions are the open sessions of an index, and the sum of what ended ones counted. Safe for
// concurrent use.
type Sessions struct {
	mu struct {
		env.Mutex
		open   []*Op
		ended  Tallies
		closed bool
	}
}

// Init makes s ready for use.
func (s *Sessions) Init(e env.Env) { s.mu.Mutex = e.NewMutex() }

// Add notes that a session is open, until Op.Close. ErrClosed: the index is closed.
func (s *Sessions) Add(o *Op) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return fmt.Errorf("open a session: %w", index.ErrClosed)
	}
	s.mu.open, o.sessions = append(s.mu.open, o), s
	return nil
}

// Remove notes that a session ended.
func (s *Sessions) Remove(o *Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.mu.open, o); i >= 0 {
		s.mu.open = slices.Delete(s.mu.open, i, i+1)
		s.mu.ended.Add(o.Count)
	}
}

// Sum returns what all sessions have counted. Of open ones up to showEvery operations may be
// missing.
func (s *Sessions) Sum() Tallies {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.mu.ended
	for _, o := range s.mu.open {
		sum.Add(o.shown.load())
	}
	return sum
}

// Close keeps every later session from being opened. It fails while sessions are open.
func (s *Sessions) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.mu.open); n > 0 {
		return fmt.Errorf("%d sessions are open", n)
	}
	s.mu.closed = true
	return nil
}
