package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/partition"
	"github.com/dmindex/dmindex/pkg/pool"
)

// scriptedPeers are other servers that say what a test tells them to say. A server that has no
// script serves nothing.
type scriptedPeers struct {
	env   env.Env
	does  map[uint32]func(limit time.Duration) (rpcv1.Outcome_Code, error)
	asked map[uint32]int // operations
}

func (s *scriptedPeers) Do(_ context.Context, to partition.Server, ops []*rpcv1.Operation, limit time.Duration, _ func(some []*rpcv1.Outcome)) ([]*rpcv1.Outcome, error) {
	s.env.Sleep(100 * time.Microsecond)
	s.asked[to.ID] += len(ops)
	code, err := rpcv1.Outcome_NOT_OWNER, error(nil)
	if does := s.does[to.ID]; does != nil {
		code, err = does(limit)
	}
	if err != nil {
		return nil, err
	}
	return fill(make([]*rpcv1.Outcome, len(ops)), &rpcv1.Outcome{Code: code}), nil
}

func (s *scriptedPeers) Start(to partition.Server, ops []*rpcv1.Operation, limit time.Duration, ended Waker) Started {
	return startBy(s.env, s, to, ops, limit, ended)
}

func (s *scriptedPeers) Scan(_ context.Context, to partition.Server, _ ScanRange, limit time.Duration, _ Visit, _ func() error) error {
	out, err := s.Do(context.Background(), to, make([]*rpcv1.Operation, 1), limit, nil)
	if err != nil {
		return err
	}
	return FailureOf(out[0])
}

func (s *scriptedPeers) Keep([]partition.Server) {}

// serves, isAway and standsStill are what a server does.
func (s *scriptedPeers) serves(time.Duration) (rpcv1.Outcome_Code, error) {
	return rpcv1.Outcome_OK, nil
}

func (s *scriptedPeers) isAway(time.Duration) (rpcv1.Outcome_Code, error) {
	return 0, &Failure{Code: rpcv1.Outcome_UNAVAILABLE, Message: "it cannot be reached"}
}

func (s *scriptedPeers) standsStill(limit time.Duration) (rpcv1.Outcome_Code, error) {
	s.env.Sleep(limit)
	return 0, &Failure{Code: rpcv1.Outcome_UNKNOWN, Message: "it did not answer"}
}

// withPeers runs f beside server 1, which holds nothing. Server 2 owns all keys by the map, and
// server 3 serves them. The others are there.
func withPeers(t *testing.T, f func(e env.Env, c *Engine, s *scripted, p *scriptedPeers)) {
	t.Helper()
	withManager(t, func(e env.Env, c *Engine, s *scripted) {
		p := &scriptedPeers{env: e, does: map[uint32]func(time.Duration) (rpcv1.Outcome_Code, error){}, asked: map[uint32]int{}}
		p.does[3], c.Peers = p.serves, p
		s.held = []pool.Held{holdingOf(3, "", "")}
		c.View.Apply(mapOfAll(t, 1, 2))
		until(t, e, "the index is open", func() bool { return c.manager.Load() != nil })
		f(e, c, s, p)
	})
}

// holdingOf is what the home says of keys that a server's client holds.
func holdingOf(server uint32, start, end string) pool.Held {
	return pool.Held{Holding: pool.Holding{Start: []byte(start), End: []byte(end), Epoch: uint64(server)}, Client: uint32(100 + server), Name: fmt.Sprint("pod-", server)}
}

// mapOfAll is a map with 12 servers, by which one of them owns everything.
func mapOfAll(t *testing.T, generation uint64, owner uint32) *partition.Map {
	m := mapFor(t, generation, owner)
	m.Servers = nil
	for id := range uint32(12) {
		m.Servers = append(m.Servers, partition.Server{ID: id + 1, Name: fmt.Sprint("pod-", id+1)})
	}
	return m
}

// ask is the outcome of one operation at a server, with the limit of a request.
func ask(c *Engine, kind rpcv1.Operation_Kind, key string) rpcv1.Outcome_Code {
	return c.Do([]*rpcv1.Operation{{Kind: kind, Key: []byte(key)}}, false, c.Limit, 0)[0].Code
}

// awaitAnswer lets a program ask for a key until that is answered, for at most so many requests.
func awaitAnswer(t *testing.T, c *Engine, what string, most int) {
	t.Helper()
	var code rpcv1.Outcome_Code
	for range most {
		if code = ask(c, rpcv1.Operation_UPSERT, "k"); code == rpcv1.Outcome_OK {
			return
		}
	}
	t.Errorf("%s: %d requests in a row without an answer, the last is %v", what, most, code)
}

// TestHolderThatEnds: a server that served keys of another one dies, or stands still, and the owner
// by the map takes them over. The map does not change. Requests go to the owner then, and one that
// stands still does not leave them in doubt for longer than it takes to find that out.
func TestHolderThatEnds(t *testing.T) {
	for _, still := range []bool{false, true} {
		withPeers(t, func(e env.Env, c *Engine, s *scripted, p *scriptedPeers) {
			awaitAnswer(t, c, "server 3 serves the keys", 2)
			p.does[2] = p.isAway // whoever asks it learns that nothing was done
			if p.does[3] = p.isAway; still {
				p.does[3] = p.standsStill
			}
			_ = ask(c, rpcv1.Operation_UPSERT, "k") // it finds that out
			e.Sleep(c.Limit)
			if code := ask(c, rpcv1.Operation_UPSERT, "k"); code != rpcv1.Outcome_UNAVAILABLE {
				t.Errorf("a change that was not made is answered %v", code)
			}
			s.held, p.does[2] = []pool.Held{holdingOf(2, "", "")}, p.serves
			awaitAnswer(t, c, "server 2 took the keys over", 1)
		})
	}
}

// TestReceiverThatIsAway: the server to which the keys are to move is away. The one that serves
// them is found all the same, also by scans.
func TestReceiverThatIsAway(t *testing.T) {
	for _, still := range []bool{false, true} {
		withPeers(t, func(e env.Env, c *Engine, _ *scripted, p *scriptedPeers) {
			if p.does[2] = p.isAway; still {
				p.does[2] = p.standsStill
			}
			awaitAnswer(t, c, "server 3 serves the keys", 3)
			c.View.Apply(mapOfAll(t, 2, 4))
			if p.does[4] = p.isAway; still {
				p.does[4] = p.standsStill
			}
			scan := func() error {
				return c.Scan(context.Background(), ScanRange{}, false, func(_, _ []byte, _ expiry.Mark) bool { return true }, func() error { return nil })
			}
			if err := scan(); err != nil {
				if err = scan(); err != nil {
					t.Errorf("server 3 serves the keys: %v", err)
				}
			}
		})
	}
}

// TestRangeThatBeginsWithASet: the server that serves keys which the map gives to another is found,
// whatever type the first one of them has.
func TestRangeThatBeginsWithASet(t *testing.T) {
	withPeers(t, func(_ env.Env, c *Engine, _ *scripted, p *scriptedPeers) {
		p.does[3] = func(limit time.Duration) (rpcv1.Outcome_Code, error) {
			if limit == c.Limit/seekAfter { // it is asked for the first key
				return rpcv1.Outcome_WRONG_TYPE, nil
			}
			return rpcv1.Outcome_OK, nil
		}
		awaitAnswer(t, c, "server 3 serves the keys", 2)
	})
}

// TestSeenLastsThroughMaps: maps follow each other fast, as the stages of a change do, and this
// server's own ranges change as fast. A server that serves keys of another one is not forgotten.
func TestSeenLastsThroughMaps(t *testing.T) {
	withPeers(t, func(e env.Env, c *Engine, s *scripted, _ *scriptedPeers) {
		awaitAnswer(t, c, "server 3 serves the keys", 2)
		for generation := range uint64(20) {
			c.View.Apply(mapOfAll(t, 2+generation, 2+uint32(generation%2)*2))
			c.View.Serve(nil, nil)
			begun := e.Now()
			awaitAnswer(t, c, "server 3 serves the keys", 1)
			if took := e.Now() - begun; took > c.Limit/20 {
				t.Errorf("a request took %v", took)
			}
			e.Sleep(c.Limit / 10)
		}
		// what moves here is served here
		s.held = nil
		c.View.Apply(mapOfAll(t, 100, 1))
		until(t, e, "server 1 serves them", func() bool { return len(c.Ranges()) == 1 && c.Ranges()[0].State == ownership.RangeServing })
		if place, _ := c.View.Place(c.View.Route(), []byte("k")); place != ownership.Here {
			t.Error("requests for keys that are served here are sent away")
		}
	})
}

// TestHolderIsFoundBetweenMaps: maps follow each other faster than an ordinary handover takes. A
// server that serves keys of another one is found.
func TestHolderIsFoundBetweenMaps(t *testing.T) {
	withPeers(t, func(e env.Env, c *Engine, _ *scripted, _ *scriptedPeers) {
		over := false
		e.Go("maps", func() {
			for generation := uint64(2); !over; generation++ {
				c.View.Apply(mapOfAll(t, generation, 2+uint32(generation%2)*2))
				e.Sleep(c.Limit / 10)
			}
		})
		awaitAnswer(t, c, "server 3 serves the keys", 1)
		over = true
	})
}

// TestManyHolders: servers that stand still do not hide the ranges of others.
func TestManyHolders(t *testing.T) {
	withPeers(t, func(e env.Env, c *Engine, s *scripted, p *scriptedPeers) {
		s.held = nil
		for n := range 100 {
			s.held = append(s.held, holdingOf(4+uint32(n%7), fmt.Sprintf("a%02d", n), fmt.Sprintf("a%02d", n+1)))
		}
		s.held = append(s.held, holdingOf(11, "a98", "b"), holdingOf(3, "b", ""))
		for id := range uint32(7) {
			p.does[4+id] = p.standsStill
		}
		awaitAnswer(t, c, "server 3 serves the key", 3)
	})
}

// TestLooksAreFew: an owner is away for long, and there are handovers that do not end, while many
// programs ask for its keys. Other servers are asked a few times a second.
func TestLooksAreFew(t *testing.T) {
	withPeers(t, func(e env.Env, c *Engine, s *scripted, p *scriptedPeers) {
		s.held = nil
		for n := range 50 {
			s.held = append(s.held, holdingOf(5, fmt.Sprintf("a%02d", n), fmt.Sprintf("a%02d", n+1)))
		}
		p.does[2] = p.isAway
		const lasts = 10 // times a request's limit
		group := env.NewWaitGroup(e)
		for range 20 {
			group.Go("program", func() {
				for begun := e.Now(); e.Now()-begun < lasts*c.Limit; {
					if code := ask(c, rpcv1.Operation_LOOKUP, "k"); code != rpcv1.Outcome_UNAVAILABLE {
						t.Errorf("a request for keys that nobody serves is answered %v", code)
					}
				}
			})
		}
		group.Wait(env.Forever)
		if looks := p.asked[5] / len(s.held); looks < lasts || looks > (lasts+1)*seekEvery {
			t.Errorf("%d looks in %d times a request's limit", looks, lasts)
		}
	})
}

// TestRequestsWaitForAnAttempt: while a server tries once more to give keys that it serves for want
// of memory, requests for them wait there. They are not told to look elsewhere.
func TestRequestsWaitForAnAttempt(t *testing.T) {
	withManager(t, func(e env.Env, c *Engine, s *scripted) {
		c.View.Apply(mapFor(t, 1, 1))
		until(t, e, "the range is served", func() bool { return len(c.Ranges()) == 1 && c.Ranges()[0].State == ownership.RangeServing })
		gives := 0
		s.give = func() error {
			gives++
			e.Sleep(20 * time.Millisecond)
			if gives > 4 {
				return nil
			}
			return index.ErrPoolFull
		}
		c.View.Apply(mapFor(t, 2, 5))
		until(t, e, "it is tried once", func() bool { return gives == 1 })
		e.Sleep(30 * time.Millisecond)
		forwarded := func() rpcv1.Outcome_Code {
			return c.Do([]*rpcv1.Operation{{Kind: rpcv1.Operation_UPSERT, Key: []byte("k")}}, true, c.Limit, 0)[0].Code
		}
		for gives < 4 {
			if code := forwarded(); code != rpcv1.Outcome_OK {
				t.Fatalf("after %d attempts a request is answered %v", gives, code)
			}
			e.Sleep(time.Millisecond)
		}
		until(t, e, "it is released", func() bool { return len(c.Ranges()) == 0 })
		if code := forwarded(); code != rpcv1.Outcome_NOT_OWNER {
			t.Errorf("a request for keys that have moved is answered %v", code)
		}
	})
}

// TestDeferredEndsWithItsClient: a server that has no client any more claims no keys for it.
func TestDeferredEndsWithItsClient(t *testing.T) {
	withManager(t, func(e env.Env, c *Engine, s *scripted) {
		c.View.Apply(mapFor(t, 1, 1))
		until(t, e, "the range is served", func() bool { return len(c.Ranges()) == 1 && c.Ranges()[0].State == ownership.RangeServing })
		s.give = func() error { return index.ErrPoolFull }
		c.View.Apply(mapFor(t, 2, 5))
		here := func() bool { place, _ := c.View.Place(c.View.Route(), []byte("k")); return place == ownership.Here }
		until(t, e, "it is deferred", func() bool { return len(c.Ranges()) == 1 && c.Ranges()[0].PoolFull && here() })
		c.Sessions.open = func() (ownership.Opened, error) { return nil, errors.New("not in this test") }
		c.Sessions.giveUp(s, index.ErrFenced)
		until(t, e, "the owner by the map is asked", func() bool { return !here() })
	})
}
