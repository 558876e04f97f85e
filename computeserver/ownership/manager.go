package ownership

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/partition"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Manager makes the ranges that one client of this server holds follow the partition map. Ranges
// that the map gives to the server are acquired, taken, settled and then served. Ranges that it
// gives to other servers are closed, given and released. One goroutine does one step after the
// other. So if its process dies at most one step is lost, and another client repeats it.
//
// A Manager does not decide who owns a range; the home memory server does.
type Manager struct {
	env    env.Env
	own    *View
	tables *Tables
	giveUp func(of Opened, why error)
	log    *slog.Logger
	limit  time.Duration // of a request
	taken  *TakeOvers

	ix    Owner
	wake  env.Event
	ended env.Event
	fence *fencer

	mu          env.Mutex // guards the rest; it is not held across calls
	stopped     bool
	held        []heldRange // ascending
	provisional bool        // a grant may have been made whose answer was lost
	known       uint64      // generation of the map in use
	claims      claims
	joined      time.Duration // when holdings were joined last
	most        int           // holdings before some are joined
}

// heldRange is a range that the home granted to this client.
type heldRange struct {
	pool.Holding
	began       time.Duration // when the map gave it to this server
	state       RangeState
	failed      int           // consecutive failed steps
	provisional bool          // a Release of it without an answer may still be under way
	next        time.Duration // when the next one is tried
	why         error

	// served although the map gives it to another server (manager_defer.go)
	deferred  bool
	deferrals int // attempts to give and release it that were put off

	since   time.Duration    // when it entered its state
	took    [2]time.Duration // how long it was in the two states before
	written int              // leaves that were written back
}

// claims are the ranges that the map gives to this server and this client does not hold.
type claims struct {
	open    []partition.Span // as of the last look
	blocked []pool.Blocked
	why     error         // why the last claim failed
	since   time.Duration // when the map gave them, or this client was opened
	next    time.Duration // when they are made the next time
	by      uint64        // generation of the map by which they were made
}

// Pauses and limits of a range manager.
const (
	// The pause after a failed step, doubled each time up to holdSlowest. holdSlowest also bounds
	// claimPause.
	holdAgain   = 2 * time.Millisecond
	holdSlowest = 200 * time.Millisecond
	// A claim that is not granted is repeated after this part of the time that it has waited.
	holdPart    = 8
	holdIdle    = 2 * time.Second // between rounds when there is nothing to do
	holdTries   = 8               // attempts of one step before the client is given up
	holdParting = 10 * time.Second
)

// Options of a range manager.
type Options struct {
	Env    env.Env
	View   *View
	Tables *Tables
	// GiveUp ends a client that cannot go on, for a reason. It does not wait.
	GiveUp    func(of Opened, why error)
	Limit     time.Duration // of a request
	TakeOvers *TakeOvers
	HeldMost  int // a client with more holdings joins some; 0 = the default
	Log       *slog.Logger
}

// NewManager returns the range manager of a client. It serves nothing before Run.
func NewManager(ix Owner, o Options) *Manager {
	h := &Manager{
		env: o.Env, own: o.View, tables: o.Tables, giveUp: o.GiveUp, log: o.Log, limit: o.Limit, taken: o.TakeOvers, ix: ix,
		wake: o.Env.NewEvent(), ended: o.Env.NewEvent(), mu: o.Env.NewMutex(), most: cmp.Or(o.HeldMost, heldMost),
	}
	h.fence = newFencer(h)
	h.tables.Replace(ix, nil)
	h.own.Serve(nil, nil)
	h.own.onChange(h.wake.Set)
	return h
}

// Owner returns the client that holds these ranges.
func (h *Manager) Owner() Owner { return h.ix }

// Run runs the manager until End.
func (h *Manager) Run() {
	defer h.ended.Set()
	for !h.isStopped() {
		h.wake.Wait(h.runDue())
	}
}

// runDue does every step that is due, and returns the pause until the next round.
func (h *Manager) runDue() (pause time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for !h.stopped {
		m := h.own.Current()
		if m == nil || h.ix.Alive() != nil {
			return holdIdle // the engine notices that too
		}
		wanted := ownSpans(m, h.own.self)
		if m.Generation != h.known {
			// A claim by an earlier map may have been granted although its call failed. From now on
			// none is.
			h.known, h.provisional, h.claims.since = m.Generation, true, h.env.Now()
		}
		if h.provisional {
			if err := h.recall(); err != nil {
				return holdSlowest
			}
			continue
		}
		h.close(wanted)
		if i := h.nextDue(); i >= 0 {
			h.step(i)
			continue
		}
		h.claims.open = h.missing(wanted)
		now := h.env.Now()
		if len(h.claims.open) > 0 && (now >= h.claims.next || h.claims.by != m.Generation || h.fence.hasNews()) {
			h.claim(m)
			continue
		}
		if h.join() {
			continue
		}
		pause = holdIdle
		if len(h.claims.open) > 0 {
			pause = min(pause, h.claims.next-now)
		}
		for i := range h.held {
			if r := &h.held[i]; r.state != RangeServing || r.deferred {
				pause = min(pause, r.next-now)
			}
		}
		return max(pause, 0)
	}
	return 0
}

// ownSpans returns what a map gives to a server, with adjacent ranges joined.
func ownSpans(m *partition.Map, self uint32) (spans []partition.Span) {
	for i := range m.Ranges {
		s := m.Span(i)
		if s.Owner != self {
			continue
		}
		if n := len(spans); n > 0 && bytes.Equal(spans[n-1].End, s.Start) {
			spans[n-1].End = s.End
			continue
		}
		spans = append(spans, s)
	}
	return spans
}

// cutRange divides a range at the ends of what is wanted.
func cutRange(r heldRange, wanted []partition.Span) (parts []heldRange) {
	at := func(key []byte) {
		if len(key) > 0 && bytes.Compare(r.Start, key) < 0 && keyrange.Before(key, r.End) {
			low := r
			low.End, r.Start = key, key
			parts = append(parts, low)
		}
	}
	for _, w := range wanted {
		at(w.Start)
		at(w.End)
	}
	return append(parts, r)
}

// isWanted reports whether any key of a range is wanted.
func isWanted(r pool.Holding, wanted []partition.Span) bool {
	return slices.ContainsFunc(wanted, func(w partition.Span) bool {
		_, _, ok := keyrange.Intersect(r.Start, r.End, w.Start, w.End)
		return ok
	})
}

// publish updates the table of what is served, so that requests see it. Called under mu.
func (h *Manager) publish() {
	var spans []partition.Span
	for _, r := range h.held {
		if r.state != RangeServing {
			continue
		}
		if n := len(spans); n > 0 && bytes.Equal(spans[n-1].End, r.Start) {
			spans[n-1].End = r.End
			continue
		}
		spans = append(spans, partition.Span{Start: r.Start, End: r.End, Owner: h.own.self, Epoch: r.Epoch})
	}
	h.tables.Replace(h.ix, spans)
	h.own.Serve(spans, h.deferred())
}

// nextDue returns the range whose next step is due, or -1. Ranges that another server waits for
// come first. Called under mu.
func (h *Manager) nextDue() int {
	now := h.env.Now()
	found := -1
	for i := range h.held {
		r := &h.held[i]
		if r.state == RangeServing || now < r.next {
			continue
		}
		leaves := r.state == RangeClosing || r.state == RangeGiving || r.state == RangeReleasing
		if leaves {
			return i
		}
		if found < 0 {
			found = i
		}
	}
	return found
}

// closes is how long a range that closes waits for sessions. The limit of an operation under way
// ends it, but not its last list of requests (index.Session.SetLimit). Then it waits for the log.
func (h *Manager) closes() time.Duration { return h.limit + pool.DefaultLimit + h.limit }

// step takes a range one state further. Called under mu, which it releases meanwhile.
func (h *Manager) step(i int) {
	r := h.held[i]
	h.mu.Unlock()
	var err error
	next, written := r.state, 0
	switch r.state {
	case RangeTaking:
		err, next = h.ix.Take(r.Holding), RangeSettling
	case RangeSettling:
		next = RangeServing
		if len(r.Inherits) > 0 {
			err = h.ix.Settle(r.Start, r.End, r.Epoch)
		}
	case RangeClosing:
		next = RangeGiving
		if most := h.closes(); !h.tables.awaitQuiet(most, h.isStopped) && !h.isStopped() {
			// only a fence ends them
			err = fmt.Errorf("requests did not end within %v: %w", most, index.ErrFenced)
		}
	case RangeGiving:
		written, err = h.ix.Give(r.Start, r.End)
		next = RangeReleasing
	case RangeReleasing:
		r.provisional, err = h.release(&r)
	}
	h.mu.Lock()
	if h.stopped && r.state == RangeClosing {
		return // the caller of End waits for the sessions
	}
	p := &h.held[i]
	p.written, p.provisional = p.written+written, r.provisional
	if err != nil || p.deferrals == 0 {
		p.why = err
	}
	switch {
	case err == nil:
	case (r.state == RangeGiving && errors.Is(err, index.ErrPoolFull) || errors.Is(err, errKept)) && !h.stopped:
		h.putOff(p, err)
		return
	default:
		h.stumbled(p, err)
		return
	}
	p.failed, p.next = 0, 0
	switch {
	case r.state == RangeReleasing:
		h.held = slices.Delete(h.held, i, i+1)
		h.log.Info("released keys", "keys", partition.Interval(r.Start, r.End), "epoch", r.Epoch, "requests_ended_after", r.took[0],
			"leaves_written_back", r.written, "written_back_in", r.took[1], "home_knew_in", h.env.Now()-r.since)
	case next == RangeServing:
		h.enterState(p, next)
		p.Inherits = nil
		h.publish()
		if clients := h.taken.note(r, h.env.Now()); len(clients) > 0 {
			h.log.Info("took keys over", "keys", partition.Interval(r.Start, r.End), "epoch", r.Epoch, "from_clients", clients, "after", p.since-p.began,
				"reason", "their clients ended, and this server replayed their logs")
		}
		h.log.Info("serving keys", "keys", partition.Interval(r.Start, r.End), "epoch", r.Epoch,
			"granted_after", p.since-p.began-p.took[0]-p.took[1], "taken_in", p.took[0], "settled_in", p.took[1])
	default:
		h.enterState(p, next)
		if next == RangeReleasing && p.deferrals > 0 { // its requests go to the next owner now
			h.publish()
		}
	}
}

// enterState records that a range enters a state.
func (h *Manager) enterState(r *heldRange, s RangeState) {
	now := h.env.Now()
	r.took[0], r.took[1] = r.took[1], now-r.since
	r.state, r.since = s, now
}

// stumbled records that a step failed. A client that was fenced is given up, and so is one whose
// step fails too often. Want of memory or of holdings does not count, because another client would
// find as little. Called under mu.
func (h *Manager) stumbled(r *heldRange, err error) {
	slowest, full := holdSlowest, errors.Is(err, index.ErrPoolFull) || errors.Is(err, pool.ErrHoldings)
	if full { // each attempt may repeat a whole replay
		slowest = holdIdle
	}
	pause := min(holdAgain<<min(r.failed, 10), slowest)
	r.failed++
	r.next = h.env.Now() + pause
	if r.failed == 1 || r.failed == holdTries {
		h.log.Warn("a step of a range failed", "keys", partition.Interval(r.Start, r.End), "state", r.state, "tries", r.failed, "error", err)
	}
	if hopeless(err) || r.failed >= holdTries && !full {
		h.giveUp(h.ix, fmt.Errorf("keys %s, %s: %w", partition.Interval(r.Start, r.End), r.state, err))
	}
}

// hopeless reports whether an error means that the client has ended.
func hopeless(err error) bool {
	return errors.Is(err, index.ErrFenced) || errors.Is(err, index.ErrClosed) || errors.Is(err, pool.ErrNotHeld)
}
