package computeserver

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
)

// engine holds the open index and its sessions. It opens the index, again and again until that works, lends sessions, replaces
// those that died, and opens the index anew when no session can be made one after the other dies, or this client was fenced.
//
// The number of sessions bounds the requests that run at once; those beyond wait, and those beyond a bound of waiters are
// refused.
type engine struct {
	env        env.Env
	open       func() (index.Index, error)
	limit      time.Duration // of each operation
	max        int           // sessions
	maxWaiting int
	log        func(format string, args ...any)

	lost atomic.Pointer[string] // why the data is lost; never taken back

	mu      env.Mutex
	ix      index.Index     // nil while not open
	why     error           // why not
	idle    []index.Session // the one used last is at the end: it is warm
	lent    int             // to requests, or being made
	waiting []env.Event     // requests that wait for a session, in order

	wake    env.Event // for run: something broke, or all sessions came back, or stop
	broken  bool
	deaths  int // sessions that died since one came back alive
	stopped bool
	ended   env.Event // run is over
}

var (
	errOpening    = errors.New("the index is being opened")
	errOverloaded = errors.New("too many requests wait already; try again or add compute servers")
	errStopped    = errors.New("the server is shutting down")
)

func newEngine(e env.Env, open func() (index.Index, error), limit time.Duration, max, maxWaiting int, log func(string, ...any)) *engine {
	return &engine{
		env: e, open: open, limit: limit, max: max, maxWaiting: maxWaiting, log: log,
		mu: e.NewMutex(), why: errOpening, wake: e.NewEvent(), ended: e.NewEvent(),
	}
}

const (
	reopenAfter        = 100 * time.Millisecond // of a failed attempt, doubled up to
	reopenAfterAtMost  = 5 * time.Second
	closeWaitsAtMost   = 30 * time.Second // for requests that still use a session
	notOpenWaitsAtMost = time.Second      // that a request waits for the index to be opened
	deathsTolerated    = 8                // sessions in a row; then the connections below them are taken for dead, too
)

// run opens the index and keeps it open until stop. It closes it at the end.
func (g *engine) run() {
	defer g.ended.Set()
	retry := reopenAfter
	for {
		ix, err := g.open()
		g.mu.Lock()
		if g.stopped {
			g.mu.Unlock()
			if err == nil {
				_ = ix.Close() // nothing was done with it
			}
			return
		}
		g.broken = false
		if err != nil {
			g.why = err
			g.noteLost(err)
			g.mu.Unlock()
			g.log("open the index: %v", err)
			g.wake.Wait(retry)
			retry = min(2*retry, reopenAfterAtMost)
			continue
		}
		g.ix, g.why = ix, nil
		g.wakeAll()
		g.mu.Unlock()
		g.log("the index is open")
		opened := g.env.Now()
		g.awaitEnd()
		if g.env.Now()-opened > reopenAfterAtMost {
			retry = reopenAfter
		}
		stopped := g.close(ix)
		if stopped {
			return
		}
		g.wake.Wait(retry)
		retry = min(2*retry, reopenAfterAtMost)
	}
}

// awaitEnd waits until the index is broken or the engine stops.
func (g *engine) awaitEnd() {
	for {
		g.mu.Lock()
		over := g.broken || g.stopped
		g.mu.Unlock()
		if over {
			return
		}
		g.wake.Wait(env.Forever)
	}
}

// close takes the index away from requests, waits for the sessions that are lent and closes it.
func (g *engine) close(ix index.Index) (stopped bool) {
	g.mu.Lock()
	g.ix = nil
	if g.why == nil {
		g.why = errStopped
	}
	idle := g.idle
	g.idle = nil
	g.wakeAll()
	g.mu.Unlock()
	for _, s := range idle {
		_ = s.Close() // it is given up in any case
	}
	deadline := env.Deadline(g.env, closeWaitsAtMost)
	for {
		g.mu.Lock()
		lent := g.lent
		stopped = g.stopped
		g.mu.Unlock()
		if lent == 0 || env.Remaining(g.env, deadline) == 0 {
			break
		}
		g.wake.Wait(env.Remaining(g.env, deadline))
	}
	if err := ix.Close(); err != nil {
		g.log("close the index: %v", err)
	}
	return stopped
}

// halt ends run and waits for it.
func (g *engine) halt(limit time.Duration) {
	g.mu.Lock()
	g.stopped = true
	g.mu.Unlock()
	g.wake.Set()
	g.ended.Wait(limit)
}

// wakeAll lets every waiter look again. Called under mu.
func (g *engine) wakeAll() {
	for _, w := range g.waiting {
		w.Set()
	}
	g.waiting = nil
}

// borrow lends a session for a moment; give it back with repay. It waits for at most limit.
func (g *engine) borrow(limit time.Duration) (index.Session, error) {
	g.mu.Lock()
	if n := len(g.idle); n > 0 { // the usual case
		s := g.idle[n-1]
		g.idle = g.idle[:n-1]
		g.lent++
		g.mu.Unlock()
		return s, nil
	}
	deadline := env.Deadline(g.env, limit)
	opening := env.Deadline(g.env, min(limit, notOpenWaitsAtMost))
	for {
		switch n := len(g.idle); {
		case g.stopped:
			g.mu.Unlock()
			return nil, errStopped
		case n > 0:
			s := g.idle[n-1]
			g.idle = g.idle[:n-1]
			g.lent++
			g.mu.Unlock()
			return s, nil
		case g.ix == nil && (env.Remaining(g.env, opening) == 0 || g.lost.Load() != nil):
			err := g.why
			g.mu.Unlock()
			return nil, fmt.Errorf("the index is not open: %w", err)
		case g.ix != nil && g.lent < g.max:
			ix := g.ix
			g.lent++
			g.mu.Unlock()
			return g.makeSession(ix)
		case len(g.waiting) >= g.maxWaiting:
			g.mu.Unlock()
			return nil, errOverloaded
		case env.Remaining(g.env, deadline) == 0:
			g.mu.Unlock()
			return nil, fmt.Errorf("no session was free for %v: %w", limit, errOverloaded)
		}
		until := deadline
		if g.ix == nil {
			until = opening
		}
		w := g.env.NewEvent()
		g.waiting = append(g.waiting, w)
		g.mu.Unlock()
		w.Wait(env.Remaining(g.env, until))
		g.mu.Lock()
		g.forget(w)
	}
}

// forget takes w out of the waiters. Called under mu.
func (g *engine) forget(w env.Event) {
	for i := range g.waiting {
		if g.waiting[i] == w {
			g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
			return
		}
	}
}

func (g *engine) makeSession(ix index.Index) (index.Session, error) {
	s, err := ix.Session()
	if err == nil {
		s.SetLimit(g.limit)
		return s, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lent--
	g.noteLost(err)
	if g.ix == ix {
		g.breakDown(err)
	}
	return nil, fmt.Errorf("make a session: %w", err)
}

// breakDown makes run open the index anew. Called under mu.
func (g *engine) breakDown(err error) {
	g.broken, g.why, g.deaths = true, err, 0
	g.wake.Set()
}

// repay gives a session back. err is the worst that it returned.
func (g *engine) repay(s index.Session, err error) {
	dead := kills(err)
	g.mu.Lock()
	g.lent--
	switch {
	case g.ix == nil: // it was closed meanwhile; s belongs to it
		dead = true
		if g.lent == 0 {
			g.wake.Set()
		}
	case !dead:
		g.deaths = 0
		g.idle = append(g.idle, s)
	default:
		g.noteLost(err)
		g.deaths++
		if errors.Is(err, index.ErrFenced) || errors.Is(err, index.ErrClosed) || g.deaths >= deathsTolerated {
			g.breakDown(err)
		}
	}
	if len(g.waiting) > 0 {
		w := g.waiting[0]
		g.waiting = g.waiting[1:]
		w.Set()
	}
	g.mu.Unlock()
	if dead {
		_ = s.Close() // it is given up in any case
	}
}

// noteLost blocks the server for good when err says that data was lost.
func (g *engine) noteLost(err error) {
	if errors.Is(err, index.ErrDataLost) {
		g.block(err.Error())
	}
}

// block lets the server answer nothing any more, for good: data was lost, as reason says.
func (g *engine) block(reason string) { g.lost.CompareAndSwap(nil, &reason) }

// kills says whether a session that returned err can be used no more.
func kills(err error) bool { return err != nil && !isAnswer(err) }

// isAnswer says whether err is one that leaves its session as it was.
func isAnswer(err error) bool {
	for _, answer := range []error{index.ErrNotFound, index.ErrExists, index.ErrKeyTooLong, index.ErrValueTooLong, index.ErrPoolFull, index.ErrNotOwner} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}

// state is whether the index is open, and why not.
func (g *engine) state() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.why
}

// stats are those of the open index, zero while there is none.
func (g *engine) stats() (s index.Stats) {
	g.mu.Lock()
	ix := g.ix
	g.mu.Unlock()
	if ix != nil {
		s = ix.Stats()
	}
	return s
}
