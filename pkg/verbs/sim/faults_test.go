package sim_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

const faultSeeds = 300

// inWorld runs body with a memory server under a plan.
func inWorld(t *testing.T, seed uint64, plan *sim.Plan, body func(w *toyWorld) error) *toyWorld {
	t.Helper()
	var w *toyWorld
	y := toy{run: func(in *toyWorld, _ bool) error { w = in; return body(in) }}
	if err := y.play(seed, plan, true); err != nil {
		t.Fatalf("seed %d: %v\nplan %v", seed, err, plan)
	}
	return w
}

// words is what the server has from at on.
func (w *toyWorld) words(at, n int) []uint64 {
	p := w.player(w.main, 9)
	list := make([]uint64, n)
	if p.must(p.post(p.read(uint64(at), 8*n))) {
		for i := range list {
			list[i] = p.at(8 * i)
		}
	}
	return list
}

// TestCrashTearsDownToWholeWrite: blocks of WholeWrite bytes are there whole or not at all; smaller
// ones than the WRITE show that it tears.
func TestCrashTearsDownToWholeWrite(t *testing.T) {
	const n = 32 // words
	for _, whole := range []int{8, 64, 256} {
		torn := 0
		for seed := range uint64(faultSeeds) {
			plan := &sim.Plan{
				Capabilities: verbs.Capabilities{WholeWrite: whole}, Tear: 8, Delay: 1000, Gap: 1000, HoldFrozen: seed%2 == 0,
				Faults: []sim.Fault{{Kind: sim.Crash, Process: clients[0], Part: 1 + int(seed%5)}},
			}
			inWorld(t, seed, plan, func(w *toyWorld) error {
				w.together(func(c *player) {
					for v := uint64(1); c.post(c.fill(0, 8*n, v)) == nil; v++ {
					}
				})
				w.server.Disconnect(func(p verbs.Peer) bool { return p.Client == 1 })
				got := w.words(0, n)
				for i := range got {
					if first := got[i*8/whole*whole/8]; got[i] != first {
						return fmt.Errorf("blocks of %d are whole, and word %d is %d in one of %d", whole, i, got[i], first)
					}
					if got[i] != got[0] {
						torn |= 1
					}
				}
				return nil
			})
		}
		if (whole < 8*n) != (torn != 0) {
			t.Errorf("WRITEs of %d bytes, WholeWrite %d: torn is %v", 8*n, whole, torn != 0)
		}
	}
}

// TestRestartTears: a memory server that dies within a WRITE leaves any words of it, if only dying
// clients leave blocks whole. Where they are whole always, so they are then.
func TestRestartTears(t *testing.T) {
	const n = 32 // words
	for _, always := range []bool{false, true} {
		torn := 0
		for seed := range uint64(faultSeeds) {
			plan := &sim.Plan{
				Capabilities: verbs.Capabilities{WholeWrite: 8 * n, WholeAlways: always}, Tear: 8, Delay: 1000, Gap: 1000,
				Faults: []sim.Fault{{Kind: sim.Restart, Process: clients[0], Part: 1 + int(seed%5)}},
			}
			inWorld(t, seed, plan, func(w *toyWorld) error {
				w.together(func(c *player) {
					for v := uint64(1); c.post(c.fill(0, 8*n, v)) == nil; v++ {
					}
				})
				for _, word := range w.words(0, n) {
					if word != w.words(0, 1)[0] {
						torn++
						break
					}
				}
				return nil
			})
		}
		if always == (torn > 0) {
			t.Errorf("whole always: %v, and %d WRITEs are torn", always, torn)
		}
	}
}

// TestCrashedClientPostsNothing: deferred functions of a dead process run and nothing that they
// post takes effect.
func TestCrashedClientPostsNothing(t *testing.T) {
	for seed := range uint64(faultSeeds) {
		plan := &sim.Plan{
			Tear: 2, Reorder: true, Delay: 1000, Gap: 1000, Faults: []sim.Fault{{Kind: sim.Crash, Process: clients[0], Part: 1 + int(seed%9)}},
		}
		inWorld(t, seed, plan, func(w *toyWorld) error {
			deferred := errors.New("not run")
			w.together(func(c *player) {
				defer func() {
					deferred = c.post(c.fill(64, 8, 77))
					c.conn.Close()
				}()
				for {
					if c.post(c.fill(0, 8, 1)) != nil {
						return
					}
				}
			})
			w.main.Sleep(time.Second)
			if !errors.Is(deferred, verbs.ErrClosed) {
				return fmt.Errorf("a dead process's deferred post: %v", deferred)
			}
			if got := w.words(64, 1)[0]; got != 0 {
				return fmt.Errorf("it took effect: %d", got)
			}
			return nil
		})
	}
}

// TestReconnectIsQuiet: what a lost connection, or a list that took too long, left under way goes
// on at times, and never once the client has connected again.
func TestReconnectIsQuiet(t *testing.T) {
	drop := []sim.Fault{{Kind: sim.Drop, Process: clients[0], Part: 3}}
	t.Run("lost connection", func(t *testing.T) { reconnectIsQuiet(t, drop, verbs.DefaultLimit) })
	t.Run("list took too long", func(t *testing.T) { reconnectIsQuiet(t, nil, 30*time.Microsecond) })
}

func reconnectIsQuiet(t *testing.T, faults []sim.Fault, limit time.Duration) {
	late := 0
	for seed := range uint64(faultSeeds) {
		plan := &sim.Plan{Tear: 8, Reorder: true, Delay: 5000, Gap: 20_000, Faults: faults}
		inWorld(t, seed, plan, func(w *toyWorld) error {
			w.together(func(c *player) {
				c.qp.SetLimit(limit)
				for v := uint64(1); c.post(c.fill(0, 256, v)) == nil; v++ {
				}
				look := func() [32]uint64 { return [32]uint64(w.words(0, 32)) }
				if seed%2 == 0 { // stay away for a while
					before := look()
					if c.Sleep(time.Millisecond); look() != before {
						late++
					}
				}
				c.connect()
				before := look()
				c.Sleep(time.Millisecond)
				if after := look(); before != after {
					w.report("after the client is back, %v became %v", before, after)
				}
			})
			return nil
		})
	}
	if late == 0 {
		t.Error("nothing ever took effect after the queue pair had ended: the adversary is tame")
	}
}

// TestFrozenClientsRequests: on a fabric like shm they stand still, else the NIC goes on.
func TestFrozenClientsRequests(t *testing.T) {
	for _, hold := range []bool{false, true} {
		plan := &sim.Plan{
			Tear: 1, Delay: 100, HoldFrozen: hold, Faults: []sim.Fault{{Kind: sim.Freeze, Process: clients[0], Part: 1, For: time.Second}},
		}
		inWorld(t, 1, plan, func(w *toyWorld) error {
			w.together(func(c *player) {
				// The first WRITE's only part freezes the client; the second one has been posted by
				// then.
				if !c.must(c.post(c.fill(0, 8, 1), verbs.Request{Op: verbs.Write, Remote: 64, Local: c.fill(0, 8, 1).Local})) {
					return
				}
				if c.Now() < time.Second {
					w.report("the wait of a frozen client ended at %v", c.Now())
				}
			}, func(c *player) {
				c.Sleep(time.Second / 2)
				if !c.must(c.post(c.read(0, 128))) {
					return
				}
				if c.at(0) != 1 || (c.at(64) == 1) == hold {
					w.report("hold is %v; while the client is frozen its WRITEs read as %d and %d", hold, c.at(0), c.at(64))
				}
			})
			return nil
		})
	}
}

// TestRestarts: with its content a server is the same one, without it has another incarnation.
func TestRestarts(t *testing.T) {
	for _, kind := range []sim.Kind{sim.Restart, sim.Lose} {
		plan := &sim.Plan{Tear: 1, Delay: 100, Faults: []sim.Fault{{Kind: kind, Process: clients[0], Part: 2}}}
		inWorld(t, 1, plan, func(w *toyWorld) error {
			w.server.Restart(true) // so that its incarnation is not 0, which means any
			was := w.server.Incarnation()
			var err error
			w.together(func(c *player) {
				for v := uint64(1); err == nil; v++ {
					err = c.post(c.fill(0, 8, v))
				}
			})
			if !errors.Is(err, verbs.ErrDisconnected) {
				return fmt.Errorf("a list on a server that restarts: %w", err)
			}
			_, err = w.f.Device(w.main).Connect(verbs.Target{Address: w.address, Token: verbs.Token{1}, Incarnation: was}, time.Minute)
			if lost := errors.Is(err, verbs.ErrLostMemory); lost != (kind == sim.Lose) {
				return fmt.Errorf("connect after %s: %w", kind, err)
			}
			if got := w.words(0, 1)[0]; (got == 0) != (kind == sim.Lose) {
				return fmt.Errorf("after %s there is %d", kind, got)
			}
			return nil
		})
	}
}

func TestStalledListTimesOut(t *testing.T) {
	plan := &sim.Plan{Tear: 1, Delay: 1, Stall: 1, StallFor: time.Hour / 2}
	inWorld(t, 3, plan, func(w *toyWorld) error {
		w.together(func(c *player) {
			c.qp.SetLimit(time.Second)
			for range 100 {
				start := c.Now()
				err := c.post(c.fill(0, 8, 1))
				if err == nil {
					continue
				}
				if took := c.Now() - start; !errors.Is(err, verbs.ErrTimeout) || took != time.Second || c.qp.Err() == nil {
					w.report("after %v: %v", took, err)
				}
				return
			}
			w.report("nothing stalls")
		})
		return nil
	})
}

// TestPlansArePrintedAndReplayed: a plan read from its text makes the same run, to the last event.
func TestPlansArePrintedAndReplayed(t *testing.T) {
	menu := sim.Menu{
		Kinds: []sim.Kind{sim.Crash, sim.Freeze, sim.Drop, sim.Restart, sim.Drift, sim.Jump}, Processes: clients, Parts: 40, Most: 8,
	}
	different := map[uint64]bool{}
	for seed := range uint64(50) {
		plan := sim.NewPlan(simenv.New(simenv.Options{Seed: seed}).Faults(), menu)
		again, err := sim.ParsePlan(plan.String())
		if err != nil || again.String() != plan.String() {
			t.Fatalf("%v is read as %v, %v", plan, again, err)
		}
		run := func(p *sim.Plan) (uint64, uint64) {
			w := inWorld(t, seed, p, func(w *toyWorld) error {
				one := func(c *player) {
					for range 50 {
						if c.post(c.swap(0, uint64(c.number)), c.read(0, 64)) != nil || c.post(c.fill(0, 64, 3), c.swap(uint64(c.number), 0)) != nil {
							c.connect()
						}
					}
				}
				w.together(one, one, one)
				return nil
			})
			return w.Hash(), w.Events()
		}
		h1, e1 := run(plan)
		h2, e2 := run(again)
		if h1 != h2 || e1 != e2 {
			t.Errorf("seed %d: %d events with hash %#x, then %d with %#x", seed, e1, h1, e2, h2)
		}
		different[h1] = true
	}
	if len(different) != 50 {
		t.Errorf("50 seeds made %d different runs", len(different))
	}
}

// TestTwoSidedCalls: they take a round trip and the time of a core, of which there are few.
func TestTwoSidedCalls(t *testing.T) {
	world := simenv.New(simenv.Options{})
	f := sim.New(world, sim.Options{})
	if err := world.Run(func(p *simenv.Process) {
		_, address, err := f.NewServer(verbs.ServerOptions{Admission: new(toyWorld)})
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		g := env.NewWaitGroup(p)
		start := p.Now()
		for i := range 100 {
			g.Go(fmt.Sprint(i), func() {
				if err := f.Call(p, address, time.Second, func() { calls++ }); err != nil {
					t.Error(err)
				}
			})
		}
		g.Wait(env.Forever)
		m := sim.Paper()
		if want := m.BaseRTT + 100/time.Duration(m.Cores)*m.CallCost; calls != 100 || p.Now()-start != want {
			t.Errorf("%d calls took %v, want %v", calls, p.Now()-start, want)
		}
		if err := f.Call(p, address, time.Nanosecond, func() { calls++ }); !errors.Is(err, verbs.ErrTimeout) || calls != 100 {
			t.Errorf("a call without time: %v", err)
		}
		if err := f.Call(p, "nowhere", time.Second, func() { calls++ }); !errors.Is(err, verbs.ErrDisconnected) {
			t.Errorf("a call to nobody: %v", err)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// TestTenThousandClients: so many can be simulated.
func TestTenThousandClients(t *testing.T) {
	l := load{100, 100, 16, verbs.Capabilities{}, reads(64)}
	if perSecond, _ := l.rate(t, 50*time.Microsecond); perSecond < 100e6 {
		t.Errorf("10000 clients made %.0f READs a second", perSecond)
	}
}
