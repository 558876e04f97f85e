package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/computeservertest/memindex"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/partition"
)

// sweeping is a server with one session and a sweeper that runs step by step. Keys from "m" on are
// of another server. What expires has expired.
type sweeping struct {
	t     *testing.T
	p     *simenv.Process
	store *memindex.Store
	c     *Engine
	w     *sweeper
	s     index.Session // of another client

	now, tick int64 // of the clock, and how far it goes on when it is read
}

func withSweeper(t *testing.T, f func(x *sweeping)) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: 1, Preempt: 4})
	err := w.Run(func(p *simenv.Process) {
		x := &sweeping{t: t, p: p, store: memindex.New(p, 8, 64), now: 1000}
		ix := *computeservertest.Config(config.RoutingAny)
		ix.Expiry = config.ExpiryEnabled
		x.c = New(Options{
			Env: p, Index: &ix, Self: 1, SharesAll: true, Limit: 30 * time.Second, MaxSessions: 1, MaxWaiting: 4, Clock: func() int64 { x.now += x.tick; return x.now }, TrustsClock: true,
			Open: func() (ownership.Opened, error) { return x.store.Open(), nil }, Log: computeservertest.Logger(t),
		})
		m, err := partition.ByBoundaries(computeservertest.Index, []partition.Server{{ID: 1, Name: "pod-1"}, {ID: 2, Name: "pod-2"}}, [][]byte{[]byte("m")})
		if err != nil {
			t.Fatal(err)
		}
		x.c.View.Apply(m)
		p.Go("engine", x.c.Sessions.Run)
		for x.c.Sessions.Opened() == nil {
			p.Sleep(time.Millisecond)
		}
		if x.s, err = x.store.Open().Session(); err != nil {
			t.Fatal(err)
		}
		x.w = newSweeper(x.c)
		f(x)
		x.c.Sessions.Halt(time.Minute)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// fill stores n pairs, of which each of-th has expired.
func (x *sweeping) fill(prefix string, n, of int) {
	x.t.Helper()
	for i := range n {
		deadline := int64(0)
		if i%of == 0 {
			deadline = 1000
		}
		if err := x.s.Upsert(fmt.Appendf(nil, "%s%04d", prefix, i), expiry.AppendStored(nil, []byte("v"), expiry.Mark{Deadline: deadline})); err != nil {
			x.t.Fatal(err)
		}
	}
}

// step runs one step, and returns how many pairs went in it.
func (x *sweeping) step() (rest time.Duration, gone int) {
	had, swept := x.store.Len(), x.c.Count.Swept.Load()
	rest = x.w.step()
	gone = had - x.store.Len()
	if n := x.c.Count.Swept.Load() - swept; n != uint64(gone) {
		x.t.Errorf("%d pairs went, %d were counted", gone, n)
	}
	return rest, gone
}

// TestSweep: a round removes all that has expired of the server's keys, piece by piece, and nothing
// else. It rests less where much has expired.
func TestSweep(t *testing.T) {
	for _, of := range []int{1, 2, 5} {
		withSweeper(t, func(x *sweeping) {
			x.fill("a", 1500, of)
			x.fill("x", 10, 1)
			before, steps := x.store.Len(), 0
			for round := false; !round; steps++ {
				rest, gone := x.step()
				if gone > scanPiecePassed {
					t.Errorf("%d pairs went in one step", gone)
				}
				switch round = rest == sweepRound; {
				case round || of == 5 && rest == sweepPause:
				case of < 4 && rest < sweepPause && rest >= sweepRest:
				case of < 4 && gone == 0 && rest == sweepPause: // behind the last one
				default:
					t.Errorf("each %dth has expired: a step of which %d went rests for %v", of, gone, rest)
				}
			}
			if gone, want := before-x.store.Len(), (1500+of-1)/of; gone != want || steps > 1500/scanPiecePassed+3 {
				t.Errorf("each %dth has expired: %d pairs went in %d steps, want %d", of, gone, steps, want)
			}
			if rest, gone := x.step(); gone != 0 || rest < sweepPause {
				t.Errorf("in the next round %d went, then a rest of %v", gone, rest)
			}
			if done := x.c.Sessions.load.done.Load(); done != 0 {
				t.Errorf("sweeping is a load of %d operations", done)
			}
		})
	}
}

// TestSweepGivesWay: the sweeper takes no session that a request waits for, and none of a server
// that drains. A pair that was written again stays, and a step ends when a handover waits for it.
func TestSweepGivesWay(t *testing.T) {
	withSweeper(t, func(x *sweeping) {
		x.fill("a", 100, 1)
		borrowed, err := x.c.Sessions.Borrow(time.Second, 0)
		if err != nil {
			t.Fatal(err)
		}
		if rest, gone := x.step(); gone != 0 || rest != sweepPause {
			t.Errorf("without a session %d went, and a rest of %v", gone, rest)
		}
		waits := x.p.NewEvent()
		x.p.Go("waits", func() {
			s, err := x.c.Sessions.Borrow(time.Hour, 0)
			if err == nil {
				err = x.c.Sessions.Repay(s, nil)
			}
			if err != nil {
				t.Error(err)
			}
			waits.Set()
		})
		for x.c.Sessions.Waiters() == 0 {
			x.p.Sleep(time.Millisecond)
		}
		began := x.p.Now()
		if rest, gone := x.step(); gone != 0 || rest != sweepPause || x.p.Now()-began >= time.Millisecond {
			t.Errorf("while a request waits for a session %d went, %v, and a rest of %v", gone, x.p.Now()-began, rest)
		}
		if err := x.c.Sessions.Repay(borrowed, nil); err != nil {
			t.Error(err)
		}
		waits.Wait(time.Hour)

		again := false
		x.store.BeforeOperation(func(key []byte) {
			if string(key) == "a0003" && !again {
				again = true
				if err := x.s.Upsert(key, expiry.AppendStored(nil, []byte("new"), expiry.Mark{})); err != nil {
					t.Error(err)
				}
			}
		})
		if _, gone := x.step(); gone != 3 || !again {
			t.Errorf("before a pair that was written again %d went", gone)
		}
		tables := ownership.NewTables(x.p)
		all := []partition.Span{{}}
		tables.Replace(x.c.Sessions.Opened(), all)
		x.c.Sessions.tables = tables
		n, had := 0, 0
		x.store.BeforeOperation(func([]byte) {
			if n++; n == 5 {
				had = x.store.Len()
				tables.Replace(x.c.Sessions.Opened(), all)
			}
		})
		if _, gone := x.step(); gone == 0 || had-x.store.Len() != 1 { // the one that was under way
			t.Errorf("a handover waits for the session, and %d went, %d of them since", gone, had-x.store.Len())
		}
		x.store.BeforeOperation(nil)
		if _, gone := x.step(); gone != scanPiecePassed {
			t.Errorf("then %d went", gone)
		}
		x.c.Drain()
		if rest, gone := x.step(); gone != 0 || rest != sweepPause {
			t.Errorf("of a server that drains %d went", gone)
		}
		if value, err := x.s.Lookup([]byte("a0003"), nil); err != nil || string(value) != "new\x00" {
			t.Errorf("the pair that was written again is %q, %v", value, err)
		}
	})
}
