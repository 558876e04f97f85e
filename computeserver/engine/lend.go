package engine

import (
	"errors"
	"fmt"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/partition"
)

// Session is a session, and the index to which it belongs.
type Session struct {
	index.Session
	of ownership.Opened
	by *ownership.Table // the keys that it may use while it is lent; nil = every key

	// what a table, which never changes, serves around the key that was asked for last
	near   partition.Span
	nearBy *ownership.Table

	counts counts

	expiring *expiry.Session // on Session; nil if pairs do not expire

	modification modification
	change       index.Change // of modification
	changeMark   expiry.Change

	groups  *grouping   // nil before the first group
	member  *memberStep // nil before the first one
	scripts *scripts
	in      *grouping // of a session on the copies of a group
}

// wakeAll wakes all waiters. Called under mu.
func (g *Sessions) wakeAll() {
	for _, w := range g.waiting {
		w.Set()
	}
	g.waiting = nil
}

// Borrow lends a session, which must be returned with Repay. It waits for at most limit. A request
// of an earlier term is refused; 0 stands for every term.
func (g *Sessions) Borrow(limit time.Duration, term uint64) (*Session, error) {
	return g.borrow(limit, notOpenWaitsAtMost, term, g.maxWaiting)
}

// borrow is Borrow, with so many waiters at most. It waits for the index to be opened for at most
// opening.
func (g *Sessions) borrow(limit, opening time.Duration, term uint64, most int) (*Session, error) {
	s, err := g.lend(limit, opening, term, most)
	if err == nil && g.tables != nil {
		s.by = g.tables.Enter()
	}
	return s, err
}

func (g *Sessions) lend(limit, opening time.Duration, term uint64, most int) (*Session, error) {
	g.mu.Lock()
	if s := g.takeIdle(term); s != nil { // the usual case
		g.mu.Unlock()
		return s, nil
	}
	deadline := env.Deadline(g.env, limit)
	opening = env.Deadline(g.env, min(limit, opening))
	for {
		if g.stopped {
			g.mu.Unlock()
			return nil, ErrStopped
		}
		g.canLend()
		if !g.isTerm(term) {
			g.mu.Unlock()
			return nil, errStoodStill
		}
		if s := g.takeIdle(term); s != nil {
			g.mu.Unlock()
			return s, nil
		}
		switch {
		case g.ix == nil && (env.Remaining(g.env, opening) == 0 || g.lost.Load() != nil):
			err := g.why
			g.mu.Unlock()
			return nil, notOpen(err)
		case g.ix != nil && g.lent < g.max:
			ix := g.ix
			g.lent++
			g.mu.Unlock()
			return g.makeSession(ix)
		case len(g.waiting) >= most:
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

// notOpen is the error of a request that found no open index. It did not begin.
func notOpen(why error) error { return fmt.Errorf("%w: %w", errNotOpen, undone{why}) }

var errNotOpen = errors.New("the index is not open")

// undone wraps the error of an operation without effect: it did not begin, or only reads. Its cause
// may be that another operation's change is unknown. An error that wraps index.ErrUnknown is
// answered UNKNOWN, which is not safe to try again; this operation is.
type undone struct{ error }

// Is hides index.ErrUnknown, and only that.
func (u undone) Is(target error) bool {
	return target != index.ErrUnknown && errors.Is(u.error, target)
}

// As searches the cause.
func (u undone) As(target any) bool { return errors.As(u.error, target) }

// read is the error of a read.
func read(err error) error {
	if err != nil && errors.Is(err, index.ErrUnknown) {
		return undone{err}
	}
	return err
}

// takeIdle lends an idle session if there is one, its client holds its leases, and the term is the
// current one. Called under mu.
func (g *Sessions) takeIdle(term uint64) *Session {
	n := len(g.idle)
	if n == 0 || !g.canLend() || !g.isTerm(term) { // an operation that has not begun is not unknown
		return nil
	}
	s := g.idle[n-1]
	g.idle = g.idle[:n-1]
	g.lent++
	s.counts.noteLent()
	return s
}

// canLend reports whether the index is open and its client holds its leases. Called under mu.
func (g *Sessions) canLend() bool {
	if g.ix == nil {
		return false
	}
	if err := g.ix.Alive(); err != nil {
		g.breakDown(g.ix, err)
		return false
	}
	return true
}

// forget removes w from the waiters. Called under mu.
func (g *Sessions) forget(w env.Event) {
	for i := range g.waiting {
		if g.waiting[i] == w {
			g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
			return
		}
	}
}

func (g *Sessions) makeSession(ix ownership.Opened) (*Session, error) {
	s, err := ix.Session()
	if err == nil {
		s.SetLimit(g.limit)
		s.Defer(true) // Repay waits
		_, unprepared := s.(index.Unprepared)
		g.unprepared.Store(unprepared)
		_, grouper := s.(index.Grouper)
		g.grouper.Store(grouper)
		lent := &Session{Session: s, of: ix, counts: newCounts(g.load, s), modification: modification{most: g.mostValue, now: g.now}, scripts: g.scripts}
		lent.change, lent.changeMark = lent.modification.change, lent.modification.changeMark
		if g.clock != nil {
			lent.expiring = expiry.New(s, g.now)
		}
		return lent, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lent--
	g.noteLost(err)
	g.breakDown(ix, err)
	return nil, fmt.Errorf("make a session: %w", undone{err})
}

// Repay returns a session. err is the worst error that it returned.
//
// It returns why no result of the session may be answered. The borrower calls it after the last
// operation and before anything is answered, once for all results of the session. In this order
// Repay
//
//	1  waits until the log is durable up to all that the session did and saw
//	2  checks that the client holds its leases
//	3  leaves the table of served ranges, and returns the session
//
// Sessions defer (index.Session): an operation returns before its record, or the record of what it
// read, is durable. Step 1 is one wait for all of them. If it fails, any of them may be undone by
// the next owner's replay: changes are in doubt, and reads may have seen what never was. Without
// step 2, other clients may have changed what the session read or cached. Step 2 follows step 1,
// because leases may expire during the wait. Until step 3 the ranges of the session are not given
// to another server.
func (g *Sessions) Repay(s *Session, err error) (withheld error) {
	s.counts.repaid()
	withheld = g.awaitLog(s)
	// A time-out ends neither the log nor the session, which goes on to wait for what it did before
	// with what it does next. Every other error ends the log.
	broken := withheld != nil && !errors.Is(withheld, index.ErrTimeout)
	if broken && !Kills(err) {
		err = withheld
	}
	if lapsed := s.of.Alive(); lapsed != nil {
		withheld, broken = lapsed, true
		if !Kills(err) {
			err = lapsed
		}
	}
	if s.by != nil {
		g.tables.Leave(s.by)
		s.by = nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case s.of != g.ix: // its index was given up meanwhile
		g.discard(s)
	case !Kills(err):
		g.deaths = 0
		g.idle = append(g.idle, s)
	default:
		g.noteLost(err)
		if CodeOf(err) != rpcv1.Outcome_TIMED_OUT { // what it waited for may be another client's
			g.deaths++
		}
		if broken || errors.Is(err, index.ErrFenced) || errors.Is(err, index.ErrClosed) || g.deaths >= deathsTolerated {
			g.breakDown(s.of, err)
		}
		g.discard(s)
	}
	if g.lent--; g.lent == 0 && g.ix == nil {
		g.wake.Set() // close waits until all sessions are returned
	}
	if len(g.waiting) > 0 {
		w := g.waiting[0]
		g.waiting = g.waiting[1:]
		w.Set()
	}
	return withheld
}

// awaitLog waits until the log is durable up to all that a session did and saw.
func (g *Sessions) awaitLog(s *Session) error {
	position := s.Position()
	if position == 0 {
		return nil
	}
	began := g.env.Now()
	err := s.Durable(position)
	g.count.LogWaits.Add(1)
	g.count.LogWaited.Add(uint64(g.env.Now() - began))
	return err
}

// discard closes a session that is given up. Called under mu, which it releases meanwhile.
func (g *Sessions) discard(s *Session) {
	g.mu.Unlock()
	_ = s.Close() // its error does not matter
	g.mu.Lock()
}

// Serves reports whether a borrowed session may use key.
func (s *Session) Serves(key []byte) bool {
	if s.by == nil {
		return true
	}
	if s.by == s.nearBy && s.near.Has(key) {
		return true
	}
	span, ok := s.servedSpan(key, false)
	if ok {
		s.near, s.nearBy = span, s.by
	}
	return ok
}

// servedSpan returns what is served around key, or, with below, around the keys right below it.
func (s *Session) servedSpan(key []byte, below bool) (partition.Span, bool) {
	return s.by.Serves(s.of, key, below)
}

// Hurries reports whether a handover waits for this session to be returned.
func (s *Session) Hurries() bool { return s.by != nil && s.by.Replaced() }
