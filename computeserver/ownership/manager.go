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

// Manager makes what one client of this server holds follow the partition map: ranges that the
// map gives to the server are acquired, taken, settled and then served; those that it gives to
// others are closed, given and released. One goroutine does one step after the other, so that what
// is lost with its process is at most one step, which another client goes through again.
//
// Nothing here decides who owns a range; that is done by the home memory server.
type Manager struct {
	env    env.Env
	own    *View
	tables *Tables
	giveUp func(of Opened, why error)
	log    *slog.Logger
	limit  time.Duration // of a request: how long those wait who are in a range that closes
	taken  *TakeOvers

	ix    Owner
	wake  env.Event
	ended env.Event
	fence *fencer

	mu          env.Mutex // guards the rest; it is not held across calls
	stopped     bool
	held        []heldRange // ascending
	provisional bool        // something may have been granted without our hearing of it
	known       uint64      // generation of the map that is acted on
	claims      claims
	joined      time.Duration // when holdings were joined last
	most        int           // holdings before some are joined
}

// heldRange is a range that the home gave to this client.
type heldRange struct {
	pool.Holding
	began  time.Duration // when this server was to have it
	state  RangeState
	failed int           // steps in a row
	next   time.Duration // when the next one is tried
	why    error

	// it is served although the map gives it to another server (manager_defer.go)
	deferred  bool
	deferrals int // attempts to give it that found no memory

	since   time.Duration    // when it came into its state
	took    [2]time.Duration // what it was in the two states before
	written int              // leaves that were written back
}

// claims are what the map gives to this server and this client does not hold.
type claims struct {
	open    []partition.Span // as of the last look
	blocked []pool.Blocked
	why     error         // why the last claim failed
	since   time.Duration // when the map gave them, or this client came to be
	next    time.Duration // when they are made again
	by      uint64        // the map of which generation they were made by
}

// Pauses and patience of a range manager.
const (
	// after a step that failed, doubled, and after a claim that was not granted (claimPause), up to
	holdAgain   = 2 * time.Millisecond
	holdSlowest = 200 * time.Millisecond
	// a claim that is not granted is made again after this part of the time that it has waited
	holdPart    = 8
	holdIdle    = 2 * time.Second // between looks when there is nothing to do
	holdTries   = 8               // attempts of one step before the client is given up
	holdParting = 10 * time.Second
)

// Options of a range manager.
type Options struct {
	Env    env.Env
	View   *View
	Tables *Tables
	// GiveUp ends a client that can do nothing more, for a reason. It does not wait.
	GiveUp    func(of Opened, why error)
	Limit     time.Duration // of a request
	TakeOvers *TakeOvers
	HeldMost  int // holdings of the client before it joins some; 0 = the default
	Log       *slog.Logger
}

// NewManager makes the range manager of a client, which serves nothing yet.
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

// Owner is the client whose ranges these are.
func (h *Manager) Owner() Owner { return h.ix }

// Run goes on until end.
func (h *Manager) Run() {
	defer h.ended.Set()
	for !h.isStopped() {
		h.wake.Wait(h.round())
	}
}

// round does every step that is due and says when to come again.
func (h *Manager) round() (pause time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for !h.stopped {
		m := h.own.Current()
		if m == nil || h.ix.Alive() != nil {
			return holdIdle // the engine sees that, too
		}
		wanted := ownSpans(m, h.own.self)
		if m.Generation != h.known {
			// A claim by an earlier map that was given up may have been granted; from now on none
			// is.
			h.known, h.provisional, h.claims.since = m.Generation, true, h.env.Now()
		}
		if h.provisional {
			if err := h.recall(); err != nil {
				return holdSlowest
			}
			continue
		}
		h.close(wanted)
		if i := h.due(); i >= 0 {
			h.step(i)
			continue
		}
		h.claims.open = h.missing(wanted)
		now := h.env.Now()
		if len(h.claims.open) > 0 && (now >= h.claims.next || h.claims.by != m.Generation || h.fence.news()) {
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

// ownSpans are what a map gives to a server, neighbours joined.
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

// cut divides a range at the ends of what is wanted.
func cut(r heldRange, wanted []partition.Span) (parts []heldRange) {
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

// isWanted reports whether any key of a range is.
func isWanted(r pool.Holding, wanted []partition.Span) bool {
	return slices.ContainsFunc(wanted, func(w partition.Span) bool {
		_, _, ok := keyrange.Intersect(r.Start, r.End, w.Start, w.End)
		return ok
	})
}

// publish makes what is served known to requests. Called under mu.
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

// due is the range whose next step is due, those first that somebody else waits for; -1 if there is
// none. Called under mu.
func (h *Manager) due() int {
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

// step takes a range one state further. Called under mu, which it gives up for the time.
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
		if !h.tables.awaitQuiet(2*h.limit, h.isStopped) && !h.isStopped() {
			// only fencing ends them
			err = fmt.Errorf("requests did not end within %v: %w", 2*h.limit, index.ErrFenced)
		}
	case RangeGiving:
		written, err = h.ix.Give(r.Start, r.End)
		next = RangeReleasing
	case RangeReleasing:
		err = h.ix.Release(r.Start, r.End, r.Epoch)
	}
	h.mu.Lock()
	if h.stopped && r.state == RangeClosing {
		return // whoever ends the range manager waits for the sessions
	}
	p := &h.held[i]
	p.written += written
	if err != nil || p.deferrals == 0 {
		p.why = err
	}
	switch {
	case err == nil:
	case r.state == RangeGiving && errors.Is(err, index.ErrPoolFull) && !h.stopped:
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
		h.enter(p, next)
		p.Inherits = nil
		h.publish()
		if clients := h.taken.note(r, h.env.Now()); len(clients) > 0 {
			h.log.Info("took keys over", "keys", partition.Interval(r.Start, r.End), "epoch", r.Epoch, "from_clients", clients, "after", p.since-p.began,
				"reason", "their clients ended, and this server replayed their logs")
		}
		h.log.Info("serving keys", "keys", partition.Interval(r.Start, r.End), "epoch", r.Epoch,
			"granted_after", p.since-p.began-p.took[0]-p.took[1], "taken_in", p.took[0], "settled_in", p.took[1])
	default:
		h.enter(p, next)
		if next == RangeReleasing && p.deferrals > 0 { // its requests go to the next owner now
			h.publish()
		}
	}
}

// enter is that a range comes into a state.
func (h *Manager) enter(r *heldRange, s RangeState) {
	now := h.env.Now()
	r.took[0], r.took[1] = r.took[1], now-r.since
	r.state, r.since = s, now
}

// stumbled notes that a step failed. A client that was fenced is given up, and one that cannot do a
// step for long; but a pool that is full is not mended by another client. Called under mu.
func (h *Manager) stumbled(r *heldRange, err error) {
	slowest := holdSlowest
	if errors.Is(err, index.ErrPoolFull) { // a replay does all of it again
		slowest = holdIdle
	}
	pause := min(holdAgain<<min(r.failed, 10), slowest)
	r.failed++
	r.next = h.env.Now() + pause
	if r.failed == 1 || r.failed == holdTries {
		h.log.Warn("a step of a range failed", "keys", partition.Interval(r.Start, r.End), "state", r.state, "tries", r.failed, "error", err)
	}
	if hopeless(err) || r.failed >= holdTries && !errors.Is(err, index.ErrPoolFull) {
		h.giveUp(h.ix, fmt.Errorf("keys %s, %s: %w", partition.Interval(r.Start, r.End), r.state, err))
	}
}

// hopeless reports whether an error is of a client that has ended.
func hopeless(err error) bool {
	return errors.Is(err, index.ErrFenced) || errors.Is(err, index.ErrClosed) || errors.Is(err, pool.ErrNotHeld)
}
