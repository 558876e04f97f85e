package blocks

import "github.com/dmindex/dmindex/pkg/env"

// Garbage is the blocks that changes of a client replaced whose records are in a log, on their way
// to Session.Retire. Each may be retired once the log is durable up to the end of its record. It is
// safe for concurrent use. A change adds one at most, and retires what is due, so it stays as short
// as what the log has under way.
type Garbage struct {
	mu   env.Mutex
	list []replaced
}

// replaced is a block that is garbage once the log is durable up to lsn.
type replaced struct {
	block Reference
	lsn   uint64
}

// Start makes g ready for use.
func (g *Garbage) Start(e env.Env) { g.mu = e.NewMutex() }

// Add adds a block that may be retired once the log is durable up to lsn.
func (g *Garbage) Add(r Reference, lsn uint64) {
	g.mu.Lock()
	g.list = append(g.list, replaced{r, lsn})
	g.mu.Unlock()
}

// Take moves blocks that may be retired to b, MostTogether at most, if there are at least so many
// of all kinds.
func (g *Garbage) Take(b []Reference, least int, durable uint64) []Reference {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.list) < least {
		return b
	}
	kept := g.list[:0]
	for _, t := range g.list {
		if t.lsn <= durable && len(b) < MostTogether {
			b = append(b, t.block)
		} else {
			kept = append(kept, t)
		}
	}
	g.list = kept
	return b
}

// Last returns how far the log has to be durable for all of it to be retired.
func (g *Garbage) Last() (lsn uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range g.list {
		lsn = max(lsn, t.lsn)
	}
	return lsn
}
