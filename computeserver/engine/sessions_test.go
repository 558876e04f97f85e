package engine

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/computeservertest/memindex"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
)

// simEngine runs f in a simulated world beside an engine over a store, whose index it opened so
// many times.
func simEngine(t *testing.T, f func(e env.Env, g *Sessions, store *memindex.Store, opened *int)) {
	t.Helper()
	for seed := range uint64(20) {
		w := simenv.New(simenv.Options{Seed: seed, Preempt: 4})
		err := w.Run(func(p *simenv.Process) {
			store, opened := memindex.New(p, 8, 8), 0
			open := func() (ownership.Opened, error) { opened++; return store.Open(), nil }
			g := newSessions(p, open, 5*time.Second, 4, 4, computeservertest.Logger(t))
			p.Go("engine", g.Run)
			f(p, g, store, &opened)
			g.Halt(time.Minute)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// sessionOf borrows, which must work.
func sessionOf(t *testing.T, g *Sessions) *Session {
	t.Helper()
	s, err := g.Borrow(time.Second, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestBrokenIndexEndsWaits: sessions wait for what a dead session of their client left locked, as
// after the loss of a connection. The index is opened anew at once, not when their limit is over.
func TestBrokenIndexEndsWaits(t *testing.T) {
	gone := errors.New("connection reset")
	simEngine(t, func(e env.Env, g *Sessions, store *memindex.Store, opened *int) {
		store.HangKey("k")
		waits := env.NewWaitGroup(e)
		for range 2 {
			s := sessionOf(t, g)
			waits.Go("waits for a lock", func() {
				_, err := s.Lookup([]byte("k"), nil)
				if lapsed := g.Repay(s, err); !errors.Is(err, index.ErrFenced) || !errors.Is(lapsed, index.ErrFenced) {
					t.Errorf("a wait ended with %v, and %v", err, lapsed)
				}
			})
		}
		e.Sleep(10 * time.Millisecond) // both wait
		broken := e.Now()
		for range deathsTolerated {
			g.Repay(sessionOf(t, g), gone)
		}
		s := sessionOf(t, g)
		if took := e.Now() - broken; *opened != 2 || took > 500*time.Millisecond {
			t.Errorf("the index was open again after %v, opened %d times", took, *opened)
		}
		if err := s.Insert([]byte("a"), nil); err != nil {
			t.Errorf("a session of the new index: %v", err)
		}
		g.Repay(s, nil)
		if !waits.Wait(time.Second) {
			t.Error("the old sessions still wait")
		}
	})
}

// TestLapsedIndexIsReopened: the leases are lost, as when the process was frozen. Without any
// request the index is opened anew, and not before what was lent comes back, whose results may not
// be answered.
func TestLapsedIndexIsReopened(t *testing.T) {
	simEngine(t, func(e env.Env, g *Sessions, store *memindex.Store, opened *int) {
		s := sessionOf(t, g)
		if err := s.Upsert([]byte("a"), nil); err != nil {
			t.Error(err)
		}
		if err := g.State(); err != nil {
			t.Errorf("before: %v", err)
		}
		store.Lapse("frozen too long")
		if err := g.State(); !errors.Is(err, index.ErrFenced) {
			t.Errorf("at once after the leases ran out: %v", err)
		}
		e.Sleep(2 * leaseLooks)
		if *opened != 1 {
			t.Error("opened anew while a session was lent")
		}
		if lapsed := g.Repay(s, nil); !errors.Is(lapsed, index.ErrFenced) {
			t.Errorf("the session came back with %v", lapsed)
		}
		e.Sleep(2 * leaseLooks)
		if err := g.State(); err != nil || *opened != 2 {
			t.Errorf("opened %d times, %v", *opened, err)
		}
		store.Lapse("again, while nothing is lent")
		e.Sleep(4 * leaseLooks)
		if err := g.State(); err != nil || *opened != 3 {
			t.Errorf("opened %d times, %v", *opened, err)
		}
	})
}

// TestNothingBeginsWithoutLeases: whoever asks right after the leases ran out gets a session of the
// next client.
func TestNothingBeginsWithoutLeases(t *testing.T) {
	simEngine(t, func(_ env.Env, g *Sessions, store *memindex.Store, opened *int) {
		g.Repay(sessionOf(t, g), nil)
		store.Lapse("frozen too long")
		s := sessionOf(t, g)
		if err := s.of.Alive(); err != nil || *opened != 2 {
			t.Errorf("got a session of client %d: %v", *opened, err)
		}
		if lapsed := g.Repay(s, nil); lapsed != nil {
			t.Error(lapsed)
		}
	})
}

// TestHaltGivesRequestsTime: a shutdown lets requests end, and ends those that do not.
func TestHaltGivesRequestsTime(t *testing.T) {
	simEngine(t, func(e env.Env, g *Sessions, store *memindex.Store, _ *int) {
		store.HangKey("k")
		s := sessionOf(t, g)
		s.SetLimit(time.Hour)
		ended := e.NewEvent()
		began := e.Now()
		e.Go("a request", func() {
			_, err := s.Lookup([]byte("k"), nil)
			g.Repay(s, err)
			ended.Set()
		})
		g.Halt(time.Minute)
		took := e.Now() - began
		if !ended.Wait(time.Second) || took < closeWaitsAtMost || took > closeWaitsAtMost+time.Second {
			t.Errorf("the shutdown took %v", took)
		}
	})
}

// TestDyingSessionsReopenTheIndex: sessions can be made, but each dies at its first use, as over a
// connection that is gone. One whose operation took too long has not died.
func TestDyingSessionsReopenTheIndex(t *testing.T) {
	e := env.Real()
	store := memindex.New(e, 8, 8)
	var opened atomic.Int32
	g := newSessions(e, func() (ownership.Opened, error) { opened.Add(1); return store.Open(), nil }, time.Minute, 2, 2, computeservertest.Logger(t))
	e.Go("engine", g.Run)
	t.Cleanup(func() { g.Halt(time.Minute) })
	computeservertest.Await(t, "the index is open", func() bool { return g.State() == nil })
	gone := errors.New("connection reset")
	use := func(err error) bool {
		s, failed := g.Borrow(time.Minute, 0)
		if failed != nil {
			return false
		}
		g.Repay(s, err)
		return true
	}
	for i := range 2 * deathsTolerated { // what they waited for may be another client's
		if !use(fmt.Errorf("lock a leaf, which client 7 holds: %w", index.ErrTimeout)) {
			t.Fatalf("no session at round %d", i)
		}
	}
	for i := range 2 * deathsTolerated { // answers in between say that the index is well
		if !use(gone) || !use(index.ErrNotFound) {
			t.Fatalf("no session at round %d", i)
		}
	}
	if n := opened.Load(); n != 1 {
		t.Fatalf("the index was opened %d times while it was well", n)
	}
	for range deathsTolerated {
		use(gone)
	}
	computeservertest.Await(t, "the index is opened anew and used", func() bool { return opened.Load() == 2 && use(nil) })
}

// TestReadsAreNeverUnknown: a read that fails since the client's log cannot be written changed
// nothing, so it is answered as one to be tried again, and its session is dead none the less.
func TestReadsAreNeverUnknown(t *testing.T) {
	simEngine(t, func(_ env.Env, g *Sessions, store *memindex.Store, _ *int) {
		s := sessionOf(t, g)
		unknown := fmt.Errorf("%w: write the redo log: %w", index.ErrUnknown, index.ErrFenced)
		store.Fail(unknown)
		operations := map[string]func(s *Session) error{
			"a lookup": func(s *Session) error { _, err := s.Lookup([]byte("k"), nil); return err },
			"a scan": func(s *Session) error {
				return s.scan(nil, 10, false, false, func(_, _ []byte, _ expiry.Mark, _ bool) bool { return true })
			},
		}
		for _, what := range []string{"a lookup", "a scan"} {
			err := operations[what](s)
			if o := OutcomeOf(err); o.Code != rpcv1.Outcome_UNAVAILABLE || !Kills(err) || !errors.Is(err, index.ErrFenced) {
				t.Errorf("%s is answered %v: %s; it kills its session: %v", what, o.Code, o.Message, Kills(err))
			}
		}
		if o := OutcomeOf(s.Upsert([]byte("k"), nil)); o.Code != rpcv1.Outcome_UNKNOWN {
			t.Errorf("a change is answered %v: %s", o.Code, o.Message)
		}
		// another session cannot be made
		if _, err := g.Borrow(time.Second, 0); OutcomeOf(err).Code != rpcv1.Outcome_UNAVAILABLE {
			t.Errorf("a request that got no session is answered %v", OutcomeOf(err))
		}
		store.Fail(nil)
		_ = g.Repay(s, unknown)
	})
}

// TestNotOpenIsNotUnknown: what ended the last client may have left an operation unknown; a request
// that finds no open index was not begun.
func TestNotOpenIsNotUnknown(t *testing.T) {
	w := simenv.New(simenv.Options{Seed: 1})
	err := w.Run(func(p *simenv.Process) {
		unknown := fmt.Errorf("%w: write the redo log: connection reset", index.ErrUnknown)
		g := newSessions(p, func() (ownership.Opened, error) { return nil, unknown }, 5*time.Second, 4, 4, computeservertest.Logger(t))
		p.Go("engine", g.Run)
		_, err := g.Borrow(time.Second, 0)
		if o := OutcomeOf(err); o.Code != rpcv1.Outcome_UNAVAILABLE || !strings.Contains(o.Message, "connection reset") {
			t.Errorf("a request that found no open index is answered %v: %s", o.Code, o.Message)
		}
		g.Halt(time.Minute)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestNewsEndTheWait: news that the index may be opened by now end the wait for the next attempt,
// and the waits behind it are short again. News that is wrong is not followed by an attempt each.
func TestNewsEndTheWait(t *testing.T) {
	for seed := range uint64(20) {
		w := simenv.New(simenv.Options{Seed: seed, Preempt: 4})
		err := w.Run(func(p *simenv.Process) {
			store, there, attempts := memindex.New(p, 8, 8), false, 0
			g := newSessions(p, func() (ownership.Opened, error) {
				if attempts++; !there {
					return nil, errors.New("nobody serves")
				}
				return store.Open(), nil
			}, 5*time.Second, 4, 4, computeservertest.Logger(t))
			p.Go("engine", g.Run)
			p.Sleep(time.Minute) // the waits are of 5 s by now
			before := attempts
			for range 3 {
				g.RetryOpen()
				p.Sleep(reopenAfter / 2)
			}
			if n := attempts - before; n < 1 || n > 6 {
				t.Errorf("%d attempts for 3 news", n)
			}
			p.Sleep(reopenAfter)
			there = true
			p.Sleep(3 * reopenAfter) // short waits, with no more news
			if err := g.State(); err != nil {
				t.Errorf("it was there for %v: %v", 3*reopenAfter, err)
			}
			g.Halt(time.Minute)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
