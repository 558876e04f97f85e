package engine

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
)

// Sessions holds the open index and its sessions. It opens the index, retrying until that succeeds.
// It lends sessions and replaces those that died. It opens the index again, as another client, if
// no session can be opened, several die in a row, or this client lost its leases.
//
// A client that is given up is condemned first. A session may wait for a lock that another session
// of the client held when it died, and such a lock is free only once the client is fenced. Fencing
// is the last step of closing the index.
//
// The number of sessions bounds the requests that run at once. Requests beyond it wait, and
// requests beyond a bound of waiters are refused.
type Sessions struct {
	// Both are set before Run.

	Standstill   time.Duration // a suspension this long begins a new term
	OnStandstill func()        // called after one, before the index is opened again

	env        env.Env
	open       func() (ownership.Opened, error)
	limit      time.Duration // of each operation
	max        int           // sessions
	maxWaiting int
	log        *slog.Logger

	mostValue int // bytes
	scripts   *scripts
	// nil where pairs do not expire
	clock *expiry.Clock // set and followed by Run
	now   func() int64  // the time by which pairs expire

	count  *count.Counters
	load   *load
	tables *ownership.Tables // of the keys that are served; nil = all are
	// hold, unless nil, lets a client hold ranges while its index is open.
	hold func(ix ownership.Opened) (end func(gently bool))

	off time.Duration // of the machine's clock, as Run saw it last

	news       atomic.Bool // RetryOpen was called
	unprepared atomic.Bool // sessions are index.Unprepared
	grouper    atomic.Bool // sessions are index.Grouper; before the first one: ranges have owners

	hand atomic.Int64           // the time, up to leaseLooks old, while the index is open; for Late
	lost atomic.Pointer[string] // why the data is lost; final

	mu      env.Mutex
	ix      ownership.Opened // nil while not open
	why     error            // why not
	idle    []*Session       // the one that was used last is at the end, because it is warm
	lent    int              // lent to requests, or being opened
	waiting []env.Event      // requests that wait for a session, in order

	wake    env.Event // for Run: the client broke, all sessions were returned, or stop
	broken  bool
	stood   bool          // it broke because the process was suspended
	term    uint64        // from 1; raised when the process was suspended beyond its leases
	seen    time.Duration // when the leases were last seen to hold
	deaths  int           // sessions that died since one was returned alive
	stopped bool
	ended   env.Event // Run has returned
}

var (
	errOpening    = errors.New("the index is being opened")
	errOverloaded = errors.New("too many requests wait already; try again or add compute servers")
	ErrStopped    = errors.New("the server is shutting down")
	errAbandoned  = errors.New("requests did not end in time")
)

func newSessions(e env.Env, open func() (ownership.Opened, error), limit time.Duration, max, maxWaiting int, log *slog.Logger) *Sessions {
	return &Sessions{
		env: e, open: open, limit: limit, max: max, maxWaiting: maxWaiting, log: log, count: &count.Counters{}, load: newLoad(e),
		mu: e.NewMutex(), why: errOpening, wake: e.NewEvent(), ended: e.NewEvent(), term: 1, Standstill: standstill, OnStandstill: func() {},
	}
}

const (
	reopenAfter       = 100 * time.Millisecond // of a failed attempt, doubled up to
	reopenAfterAtMost = 5 * time.Second
	// for requests that still use a session, when the server shuts down
	closeWaitsAtMost   = 30 * time.Second
	condemnedWaits     = 5 * time.Second // the same, once the client is condemned
	leaseLooks         = 250 * time.Millisecond
	notOpenWaitsAtMost = time.Second // that a request waits for the index to be opened
	// sessions in a row; after that their connections are considered dead too
	deathsTolerated = 8
	standstill      = 2 * time.Second
)

// Run opens the index and keeps it open until Halt. It closes it at the end.
func (g *Sessions) Run() {
	defer g.ended.Set()
	retry := reopenAfter
	away := g.env.Now() // since when the index has not been open
	for {
		begun := g.env.Now()
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
			g.log.Warn("open the index: trying again", "error", err)
			retry = g.pause(retry)
			continue
		}
		g.ix, g.why, g.stood, g.seen = ix, nil, false, g.env.Now()
		g.hand.Store(int64(g.seen)) // before a session is lent
		if g.clock != nil {
			g.clock.Set()
		}
		g.wakeAll()
		g.mu.Unlock()
		opened := g.env.Now()
		g.log.Info("the index is open", "opened_in", opened-begun, "closed_for", opened-away)
		end := func(bool) {}
		if g.hold != nil {
			end = g.hold(ix)
		}
		g.awaitEnd()
		away = g.env.Now()
		if g.env.Now()-opened > reopenAfterAtMost {
			retry = reopenAfter
		}
		stopped := g.close(ix, end)
		if stopped {
			return
		}
		retry = g.pause(retry)
	}
}

// pause waits before the next attempt to open the index, and returns how long the wait after that
// one is. RetryOpen ends it.
func (g *Sessions) pause(retry time.Duration) (next time.Duration) {
	if !g.news.Load() {
		g.wake.Wait(retry)
	}
	if g.news.Swap(false) {
		return reopenAfter
	}
	return min(2*retry, reopenAfterAtMost)
}

// RetryOpen says that an attempt to open the index may succeed by now, or that the client is given
// up: a memory server is elsewhere. Whoever calls it bounds how often.
func (g *Sessions) RetryOpen() {
	g.news.Store(true)
	g.wake.Set()
}

// awaitEnd waits until the client is broken or the engine stops. It checks the leases too, because
// requests may not come for a long time.
func (g *Sessions) awaitEnd() {
	for {
		g.mu.Lock()
		over := g.broken || g.stopped
		g.mu.Unlock()
		if over {
			return
		}
		g.mu.Lock()
		alive := g.canLend()
		if alive {
			g.seen = g.env.Now()
			g.hand.Store(int64(g.seen))
		}
		g.mu.Unlock()
		if alive {
			g.followClock()
			g.wake.Wait(leaseLooks)
		}
	}
}

// clockOff is how far a machine's clock may be off before that is said.
const clockOff = time.Second

// followClock lets the clock of expiry follow the machine's, and says it if that was set.
func (g *Sessions) followClock() {
	if g.clock == nil {
		return
	}
	g.clock.Follow()
	off, _ := g.ClockOff()
	if was := g.off; off.Abs() > clockOff && was.Abs() <= clockOff {
		g.log.Warn("the machine's clock was set: pairs expire by the clock from before, which follows it slowly; if the machine's is right now, end this server, so that another one starts by it", "ahead", off)
	}
	g.off = off
}

// ClockOff is how far the machine's clock is ahead of the one by which pairs expire; false if they
// do not.
func (g *Sessions) ClockOff() (time.Duration, bool) {
	if g.clock == nil {
		return 0, false
	}
	return time.Duration(g.clock.Off()) * time.Millisecond, true
}

// close takes the index away from requests, ends their waits if the client is broken, waits for the
// lent sessions, and closes it. end is the function that hold returned.
func (g *Sessions) close(ix ownership.Opened, end func(gently bool)) (stopped bool) {
	g.mu.Lock()
	g.ix = nil
	if g.why == nil {
		g.why = ErrStopped
	}
	broken, stood, why := g.broken, g.stood, g.why
	idle := g.idle
	g.idle = nil
	g.wakeAll()
	g.mu.Unlock()
	if stood {
		g.OnStandstill()
	}
	if broken {
		g.log.Error("the index is given up, to be opened anew by another client", "reason", why)
		ix.Condemn(why)
	}
	for _, s := range idle {
		_ = s.Close() // it is given up in any case
	}
	if !broken && !g.awaitLent(closeWaitsAtMost) {
		ix.Condemn(errAbandoned)
		broken = true
	}
	if broken && !g.awaitLent(condemnedWaits) {
		g.log.Error("close the index, though its client was given up", "error", errAbandoned)
	}
	end(!broken)
	if err := ix.Close(); err != nil {
		g.log.Error("close the index", "error", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stopped
}

// awaitLent waits until no session is lent, for at most limit. Meanwhile it publishes the time:
// batches that hold a session go on, and end when their time is over.
func (g *Sessions) awaitLent(limit time.Duration) bool {
	for deadline := env.Deadline(g.env, limit); ; {
		g.mu.Lock()
		lent := g.lent
		g.mu.Unlock()
		g.hand.Store(int64(g.env.Now()))
		left := env.Remaining(g.env, deadline)
		if lent == 0 || left == 0 {
			return lent == 0
		}
		g.wake.Wait(min(left, leaseLooks))
	}
}

// Halt ends Run and waits for it. It reports whether Run ended within limit: then what the client
// held is given back, and it has parted from its memory servers.
func (g *Sessions) Halt(limit time.Duration) bool {
	g.mu.Lock()
	g.stopped = true
	g.mu.Unlock()
	g.wake.Set()
	return g.ended.Wait(limit)
}

// breakDown makes run give ix up and open it anew, if it is the one that is open. Called under mu.
func (g *Sessions) breakDown(ix ownership.Opened, err error) {
	if g.ix != ix {
		return
	}
	g.ix, g.broken, g.why, g.deaths = nil, true, err, 0
	if errors.Is(err, index.ErrFenced) && g.env.Now()-g.seen > g.Standstill {
		g.term++
		g.stood = true
	}
	g.wake.Set()
}

// giveUp is breakDown, called without mu.
func (g *Sessions) giveUp(ix ownership.Opened, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.breakDown(ix, err)
}

// noteLost blocks the server for good when err says that data was lost.
func (g *Sessions) noteLost(err error) {
	if errors.Is(err, index.ErrDataLost) {
		g.Block(err.Error())
	}
}

// Block lets the server answer nothing any more, for good: data was lost, as reason says.
func (g *Sessions) Block(reason string) { g.lost.CompareAndSwap(nil, &reason) }

// State is whether the index is open and this client may answer from it, and why not.
func (g *Sessions) State() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ix == nil {
		return g.why
	}
	return g.ix.Alive()
}

// Owned reports whether ranges have owners in this design, so that keys are served only while this
// server's client holds them.
func (g *Sessions) Owned() bool { return g.tables != nil }

// Prepares reports whether preparing for changes may be of use: the design does not say that it
// does nothing.
func (g *Sessions) Prepares() bool { return !g.unprepared.Load() }

// Groups reports whether several operations may be done in one step.
func (g *Sessions) Groups() bool { return g.grouper.Load() }

// Waiters is how many requests wait for a session.
func (g *Sessions) Waiters() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}

// Opened is the open index and its client; nil while there is none.
func (g *Sessions) Opened() ownership.Opened {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ix
}

// Stats are those of the open index, zero while there is none.
func (g *Sessions) Stats() (s index.Stats) {
	if ix := g.Opened(); ix != nil {
		s = ix.Stats()
	}
	return s
}
