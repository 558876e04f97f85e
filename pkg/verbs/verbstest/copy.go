package verbstest

import (
	"bytes"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Copy is a copy of a server's data region in the same process, and the verbs.Link of its journal.
type Copy struct {
	mu      env.Mutex
	more    env.Event // of what Receive waits for
	replica verbs.Replica
	stream  []byte // of which no whole item has arrived

	applied, answered verbs.Position
	items             int
	held              bool
	broken            error
}

// NewCopy makes a copy of memory as it is now.
func NewCopy(e env.Env, memory []byte) *Copy {
	return &Copy{mu: e.NewMutex(), more: e.NewEvent(), replica: verbs.Replica{Memory: bytes.Clone(memory), Known: true}}
}

// Join makes the copy one that answers of a journal wait for.
func (c *Copy) Join(j *verbs.Journal) *verbs.Feed {
	f, err := j.Feed(func() error { return nil }, nil)
	if err == nil {
		c.From(f.Start())
		err = f.Connect(c, f.Start())
	}
	if err == nil {
		err = f.Await()
	}
	if err != nil {
		panic(err) // a test that asks for it where it cannot be
	}
	return f
}

// From lets the copy be one that has all up to a position.
func (c *Copy) From(p verbs.Position) { c.applied, c.answered = p, p }

// Send implements verbs.Link.
func (c *Copy) Send(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stream = append(c.stream, b...)
	for c.broken == nil {
		i, n, err := verbs.NextItem(c.stream, uint64(len(c.replica.Memory)))
		if c.broken = err; n == 0 {
			break
		}
		if c.broken = c.replica.Apply(&i); c.broken == nil {
			c.stream, c.applied, c.items = c.stream[n:], c.applied+verbs.Position(n), c.items+1
		}
	}
	c.more.Set()
	return len(b), c.broken
}

// Receive implements verbs.Link.
func (c *Copy) Receive() (verbs.Position, error) {
	for {
		c.mu.Lock()
		applied, broken, news := c.applied, c.broken, c.applied > c.answered && !c.held
		if news {
			c.answered = applied
		}
		c.mu.Unlock()
		switch {
		case broken != nil:
			return 0, broken
		case news:
			return applied, nil
		case !c.more.Wait(moment):
			return 0, nil
		}
	}
}

// Close implements verbs.Link.
func (c *Copy) Close() error { return nil }

// moment is how long a link may wait.
const moment = 5 * time.Millisecond

// Hold lets the copy answer nothing, until it is called with false.
func (c *Copy) Hold(held bool) {
	c.mu.Lock()
	c.held = held
	c.mu.Unlock()
	c.more.Set()
}

// Break ends the copy: its link fails from now on.
func (c *Copy) Break(err error) {
	c.mu.Lock()
	c.broken = err
	c.mu.Unlock()
	c.more.Set()
}

// Equal reports whether the copy has what is in memory.
func (c *Copy) Equal(memory []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Equal(c.replica.Memory, memory)
}

// Memory is what the copy has.
func (c *Copy) Memory() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.replica.Memory)
}

// Ledger is the copy's ledger.
func (c *Copy) Ledger() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.replica.Ledger)
}

// Items is how many changes the copy has.
func (c *Copy) Items() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.items
}

// Surprise lets the copy say that it has more than it was sent.
func (c *Copy) Surprise() {
	c.mu.Lock()
	c.applied += verbs.JournalWindow
	c.mu.Unlock()
	c.more.Set()
}
