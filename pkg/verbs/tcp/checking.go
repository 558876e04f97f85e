package tcp

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// checking are the sessions of a server whose requests are checked, or recorded in a journal. A
// session's number is odd from before it checks a list until it has executed it, and nothing in
// between waits for anything but a processor. So a number that was even, or is another one than
// before, says that what was checked before is over. The protocol stands at verbs.Reach.
type checking struct {
	mu  sync.Mutex
	all map[*session]struct{}
}

func (c *checking) add(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[*session]struct{}{}
	}
	c.all[s] = struct{}{}
}

// remove is called when nothing of s is executed any more, a panic included.
func (c *checking) remove(s *session) {
	c.mu.Lock()
	delete(c.all, s)
	c.mu.Unlock()
	if s.checks.Load()%2 != 0 {
		s.endCheck()
	}
	if s.answers.Load()%2 != 0 {
		s.answers.Add(1)
	}
}

func (s *session) beginCheck() {
	if s.checked {
		s.checks.Add(1)
	}
}

func (s *session) endCheck() {
	if s.checked {
		s.checks.Add(1)
	}
}

// settleLook is how often Settle looks at a session that is executing a list.
const settleLook = 50 * time.Microsecond

// Settle implements verbs.Checked.
func (c *checking) Settle(limit time.Duration) error {
	return c.pass(limit, "executed", func(s *session) *atomic.Uint64 { return &s.checks })
}

// Answered implements verbs.Answering.
func (c *checking) Answered(limit time.Duration) error {
	return c.pass(limit, "answered", func(s *session) *atomic.Uint64 { return &s.answers })
}

// pass waits until what is under way is over in each session, as one of its numbers says that is
// odd meanwhile.
func (c *checking) pass(limit time.Duration, what string, number func(*session) *atomic.Uint64) error {
	c.mu.Lock()
	all := slices.Collect(maps.Keys(c.all))
	c.mu.Unlock()
	deadline := time.Now().Add(limit)
	for _, s := range all {
		n := number(s)
		for seen := n.Load(); seen%2 != 0 && n.Load() == seen; time.Sleep(settleLook) {
			if time.Now().After(deadline) {
				return fmt.Errorf("%w: a list of client %d of index %s is still being %s", verbs.ErrTimeout, s.peer.Client, s.peer.Index, what)
			}
		}
	}
	return nil
}
