package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/computeservertest/memindex"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/partition"
	"github.com/dmindex/dmindex/pkg/pool"
)

// scripted is an Owner that says what a test tells it to say.
type scripted struct {
	*memindex.Index
	fence   func(server uint16) error
	acquire func(c pool.Claim) (pool.Acquired, error)
	take    func() error
	give    func() error
	held    []pool.Held
	calls   []string
	lines   *lines
}

// lines counts the lines of a log by their messages.
type lines struct {
	slog.Handler
	mu sync.Mutex
	n  map[string]int
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }

func (l *lines) Handle(ctx context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n[r.Message]++
	return l.Handler.Handle(ctx, r)
}

// times is how often a line was written.
func (l *lines) times(message string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n[message]
}

func (s *scripted) note(call string, err error) error { s.calls = append(s.calls, call); return err }

func (s *scripted) Log() []byte                                 { return nil }
func (s *scripted) Client() uint32                              { return 9 }
func (s *scripted) Servers() []uint16                           { return []uint16{1, 2, 3} }
func (s *scripted) Take(pool.Holding) error                     { return s.note("take", s.take()) }
func (s *scripted) Give([]byte, []byte) (int, error)            { return 1, s.note("give", s.give()) }
func (s *scripted) Settle([]byte, []byte, uint64) error         { return s.note("settle", nil) }
func (s *scripted) Release([]byte, []byte, uint64) error        { return s.note("release", nil) }
func (s *scripted) Holdings() ([]pool.Held, error)              { return s.held, nil }
func (s *scripted) FenceOthers(server uint16, _ []uint32) error { return s.fence(server) }
func (s *scripted) Others() ([]uint16, error)                   { return s.Servers()[1:], nil }

func (s *scripted) Acquire(c pool.Claim) (pool.Acquired, error) { return s.acquire(c) }

// withManager runs f beside a server that holds ranges, in a simulated world.
func withManager(t *testing.T, f func(e env.Env, c *Engine, s *scripted)) {
	t.Helper()
	for seed := range uint64(10) {
		err := simenv.New(simenv.Options{Seed: seed, Preempt: 4}).Run(func(p *simenv.Process) {
			store := memindex.New(p, 8, 8)
			fine := func() error { return nil }
			s := &scripted{Index: store.Open(), take: fine, give: fine, fence: func(uint16) error { return nil }}
			s.lines = &lines{Handler: computeservertest.Logger(t).Handler(), n: map[string]int{}}
			s.acquire = func(c pool.Claim) (pool.Acquired, error) {
				return pool.Acquired{Own: []pool.Holding{{Start: c.Start, End: c.End, Epoch: 1}}}, nil
			}
			c := New(Options{
				Env: p, Index: &config.Index{Identity: computeservertest.Index, KeyType: config.KeyBytes, MaxKeyBytes: 8, MaxValueBytes: 8}, Self: 1,
				Open: func() (ownership.Opened, error) { return s, nil }, Limit: time.Second, MaxSessions: 4, MaxWaiting: 4, Log: slog.New(s.lines),
			})
			p.Go("engine", c.Sessions.Run)
			f(p, c, s)
			c.Sessions.Halt(time.Minute)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// mapFor is the map of a generation, by which a server owns everything.
func mapFor(t *testing.T, generation uint64, owner uint32) *partition.Map {
	m, err := partition.EqualWidth(computeservertest.Index, []partition.Server{{ID: owner, Name: "pod"}}, partition.Bytes, 0)
	if err != nil {
		t.Fatal(err)
	}
	m.Generation = generation
	return m
}

func until(t *testing.T, e env.Env, what string, f func() bool) {
	for end := e.Now() + time.Minute; !f(); e.Sleep(10 * time.Millisecond) {
		if e.Now() > end {
			t.Errorf("not within a minute: %s", what)
			return
		}
	}
}

// TestUnfencedIsNamed: a range that waits for a memory server names it, for as long as it waits,
// and no claim says that its orphan is fenced. Each decision is one line of the log.
func TestUnfencedIsNamed(t *testing.T) {
	withManager(t, func(e env.Env, c *Engine, s *scripted) {
		away := true
		s.fence = func(server uint16) error {
			if away && server == 3 {
				return errors.New("it does not answer")
			}
			return nil
		}
		granted := s.acquire
		s.acquire = func(c pool.Claim) (pool.Acquired, error) {
			if len(c.Fenced) == 1 && c.Fenced[0] == 7 {
				if away {
					t.Error("a claim says that client 7 is fenced everywhere")
				}
				got, err := granted(c)
				got.Own[0].Inherits = []pool.Inherited{{Client: 7}}
				return got, err
			}
			return pool.Acquired{Blocked: []pool.Blocked{{Start: c.Start, End: c.End, Client: 7, Why: pool.ToBeFenced}}}, nil
		}
		c.View.Apply(mapFor(t, 1, 1))
		named := func() bool {
			all := c.Ranges()
			return len(all) == 1 && all[0].State == ownership.RangeAcquiring && all[0].Unfenced == 3 && strings.Contains(all[0].Reason, "memory server 3: it does not answer")
		}
		until(t, e, "the server is named", named)
		for range 200 {
			if e.Sleep(37 * time.Millisecond); !named() {
				t.Errorf("the server is not named any more: %+v", c.Ranges())
				return
			}
		}
		if err := c.manager.Load().Why([]byte("k")); !strings.Contains(err.Error(), "memory server 3") {
			t.Error(err)
		}
		away = false
		until(t, e, "the range is served", func() bool { all := c.Ranges(); return len(all) == 1 && all[0].State == ownership.RangeServing })
		e.Sleep(time.Second)
		all := c.taken.Describe(e.Now())
		if len(all) != 1 || len(all[0].Clients) != 1 || all[0].Clients[0] != 7 || all[0].Epoch != 1 {
			t.Fatalf("take-overs: %v", all)
		}
		for _, message := range []string{"fencing a former owner", "a former owner cannot be fenced yet", "a former owner is fenced at all memory servers", "took keys over", "serving keys"} {
			if n := s.lines.times(message); n != 1 {
				t.Errorf("%d lines %q", n, message)
			}
		}
		if took, age := all[0].TookMilliseconds, all[0].AgeMilliseconds; took < 200*37 || took > 10000 || age < 1000 || age > 3000 {
			t.Errorf("it took %d ms, and was %d ms ago", took, age)
		}
	})
}

// TestLostGrantIsFound: a grant whose answer was lost, and which the next map takes away, is given
// back.
func TestLostGrantIsFound(t *testing.T) {
	withManager(t, func(e env.Env, c *Engine, s *scripted) {
		s.acquire = func(c pool.Claim) (pool.Acquired, error) {
			s.held = []pool.Held{{Holding: pool.Holding{Start: c.Start, End: c.End, Epoch: 4, Inherits: []pool.Inherited{{Client: 2, Epoch: 3}}}, Client: 9}}
			return pool.Acquired{}, pool.ErrOtherMap // as if the answer had been another one
		}
		c.View.Apply(mapFor(t, 1, 1))
		until(t, e, "it is granted", func() bool { return s.held != nil })
		c.View.Apply(mapFor(t, 2, 5))
		until(t, e, "it is released", func() bool { return strings.Join(s.calls, " ") == "take settle give release" })
	})
}

// claimsSlowest is the longest pause between claims.
const claimsSlowest = 200 * time.Millisecond

// TestReleasedKeysAreTakenSoon: what was released is claimed within a sixth of the time that it has
// been waited for, however long that was, up to the slowest pause; with few claims.
func TestReleasedKeysAreTakenSoon(t *testing.T) {
	for _, after := range []time.Duration{20 * time.Millisecond, 300 * time.Millisecond, time.Second, 10 * time.Second} {
		withManager(t, func(e env.Env, c *Engine, s *scripted) {
			granted, claims := s.acquire, 0
			released, found := e.Now()+after, time.Duration(0)
			s.acquire = func(c pool.Claim) (pool.Acquired, error) {
				claims++
				if e.Now() < released {
					return pool.Acquired{Blocked: []pool.Blocked{{Start: c.Start, End: c.End, Client: 7, Why: pool.HeldByOther}}}, nil
				}
				found = e.Now()
				return granted(c)
			}
			c.View.Apply(mapFor(t, 1, 1))
			until(t, e, "the range is served", func() bool { all := c.Ranges(); return len(all) == 1 && all[0].State == ownership.RangeServing })
			if late := found - released; late > min(max(after/6, 5*time.Millisecond), 2*claimsSlowest) || claims > 120 {
				t.Errorf("keys that were released after %v are claimed %v later, by claim %d", after, late, claims)
			}
		})
	}
}

// TestHopelessOwnerIsGivenUp: a client that cannot give is given up after some attempts; one whose
// pool is full is not.
func TestHopelessOwnerIsGivenUp(t *testing.T) {
	withManager(t, func(e env.Env, c *Engine, s *scripted) {
		c.View.Apply(mapFor(t, 1, 1))
		serving := func() bool { all := c.Ranges(); return len(all) == 1 && all[0].State == ownership.RangeServing }
		until(t, e, "the range is served", serving)
		full := true
		s.give = func() error {
			if full {
				return index.ErrPoolFull
			}
			return index.ErrUnreachable
		}
		c.View.Apply(mapFor(t, 2, 5))
		until(t, e, "it tries", func() bool { return len(s.calls) > 6 })
		if err := s.Alive(); err != nil {
			t.Errorf("a client whose pool is full was given up: %v", err)
		}
		full = false
		until(t, e, "the client is given up", func() bool { return s.Alive() != nil })
	})
}

// TestFullPoolIsTold: a range that waits for memory says so, before each attempt and during it,
// until there is some.
func TestFullPoolIsTold(t *testing.T) {
	withManager(t, func(e env.Env, c *Engine, s *scripted) {
		full := true
		s.take = func() error {
			if e.Sleep(3 * time.Millisecond); full {
				return fmt.Errorf("3 of 9 changes find no memory: %w", index.ErrPoolFull)
			}
			return nil
		}
		told := func() bool {
			d := c.Describe()
			return len(d.Ranges) == 1 && d.Ranges[0].PoolFull && d.Ranges[0].State == string(ownership.RangeTaking) && strings.Contains(d.Ranges[0].Reason, "3 of 9 changes")
		}
		c.View.Apply(mapFor(t, 1, 1))
		until(t, e, "it is told", told)
		for range 200 {
			if e.Sleep(37 * time.Millisecond); !told() {
				t.Errorf("not told any more: %+v", c.Ranges())
				return
			}
		}
		full = false
		until(t, e, "the range is served", func() bool {
			all := c.Ranges()
			return len(all) == 1 && all[0].State == ownership.RangeServing && !all[0].PoolFull && all[0].Reason == ""
		})
	})
}
