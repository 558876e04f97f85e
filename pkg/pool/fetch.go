package pool

import (
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool/internal/lock"
)

// Memory that takes control calls to get is fetched by a goroutine of its own, one at a time for
// each memory server: what it leaves half done when it gives up allocator.mu for a call is of that
// server only, and nobody waits for a server that stands still but who wants memory of it.
// allocator.mu is never held across a call, so nodes and places for images that this client has are
// handed out meanwhile. A session waits for the turn, and for what is fetched, until its operation
// is overdue: it may hold a node's lock, which others wait for. The calls go on without it, for
// Config.Limit, and what they bring stays this client's. If the session ended the calls instead,
// chunks would be lost that a memory server had granted just then: as many as operations try in
// vain while a server stands still.

// fetcher is how an allocator makes its control calls.
type fetcher struct {
	turn  *lockTable // a lock for each server: whose fetch it is
	group *env.WaitGroup
}

// fetchTurns is how many servers can have a turn of their own. Those beyond share them.
const fetchTurns = 64

func newFetcher(e env.Env) fetcher { return fetcher{newLockTable(e, fetchTurns), env.NewWaitGroup(e)} }

// fetch lets get find a node or a place for an image on a server, and returns it. get is called
// under a.mu, by one goroutine at a time for each server, and gives it up for calls (calling). If
// the operation of s becomes overdue before that, put is called with what get found, under a.mu,
// when it is found. A nil session waits for as long as calls may take.
func (a *allocator) fetch(s *Session, server int, get func() (Addr, error), put func(Addr)) (Addr, error) {
	p := a.pool
	w, deadline := (*lock.Waiter)(nil), env.Deadline(p.env, p.limit)
	left := func() time.Duration { return env.Remaining(p.env, deadline) }
	late := func() error { return ErrTimeout }
	if s != nil {
		w, left, late = s.wait, s.remaining, s.Overdue
	} else {
		w = lock.NewWaiter(p.env)
	}
	overdue := func() error {
		if err := late(); err != nil {
			return err
		}
		return ErrTimeout // its clock and that of the wait are not quite the same
	}
	turn := uint32(server % fetchTurns)
	if _, ok := a.fetcher.turn.acquire(turn, w, left()); !ok {
		return Nil, fmt.Errorf("wait until another session has fetched memory of memory server %d: %w", p.servers()[server].id, overdue())
	}
	var f struct { // guarded by a.mu
		addr       Addr
		err        error
		over, left bool
	}
	done := p.env.NewEvent() // nobody waits for it any more, perhaps, when it is set
	a.fetcher.group.Go("fetch memory", func() {
		a.mu.Lock()
		f.addr, f.err = get()
		if f.over = true; f.left && f.err == nil {
			put(f.addr)
		}
		a.mu.Unlock()
		a.fetcher.turn.release(turn, false)
		done.Set()
	})
	done.Wait(left())
	a.mu.Lock()
	defer a.mu.Unlock()
	if f.over {
		return f.addr, f.err
	}
	f.left = true
	return Nil, fmt.Errorf("wait for memory of memory server %d: %w", p.servers()[server].id, overdue())
}

// calling gives a.mu up for a call. What the caller knew of free nodes and chunks may have changed
// when it returns.
func (a *allocator) calling(call func() error) error {
	a.mu.Unlock()
	defer a.mu.Lock()
	return call()
}

// fetchChunk asks server i for a chunk with runs of a unit: one that a fenced client left, or one
// of the quota. Which nodes there are in a chunk, its table says, and not the ledger.
func (a *allocator) fetchChunk(i int, unit uint64, adopt bool) (off uint64, err error) {
	p := a.pool
	if why := p.condemned.Load(); why != nil {
		return 0, *why
	}
	err = a.calling(func() (err error) {
		s := p.servers()[i]
		off, err = p.control.AllocateChunk(s.id, p.number, int(unit), adopt, p.limit)
		return err
	})
	return off, err
}
