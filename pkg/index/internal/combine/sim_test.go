package combine_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/index/internal/register"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// Limits of an operation, as in package indexsim.
const (
	longLimit  = 5 * time.Minute
	shortLimit = 25 * time.Millisecond
)

// run does the run of a seed and returns the toy, the plan, and what is wrong.
func run(seed uint64, f faults, given *sim.Plan) (*toy, *sim.Plan, error) {
	w := simenv.New(simenv.Options{Seed: seed, Preempt: 6, MaxEvents: 5_000_000})
	r := rand.New(rand.NewPCG(seed, 9))
	x := &toy{w: w, faults: f, clients: 1 + r.IntN(3), sessions: 2 + r.IntN(3), operations: 6 + r.IntN(14), limit: longLimit}
	keys := 1 + r.IntN(2)
	if x.writes = 2; r.IntN(2) == 0 {
		x.writes, x.clients, x.sessions = 6, 1+r.IntN(2), 4+r.IntN(3)
	}
	menu := sim.Menu{Kinds: []sim.Kind{sim.Freeze, sim.Freeze, sim.Drift}, Parts: 20 * x.sessions * x.operations, Most: 4, Longest: 3 * time.Millisecond}
	switch r.IntN(4) {
	case 0:
		x.limit, menu.Kinds, menu.Longest, menu.Most = shortLimit, menu.Kinds[:1], 5*shortLimit, 15
	case 1, 2:
		x.lease = []time.Duration{10, 30}[r.IntN(2)] * time.Millisecond
		menu.Kinds, menu.Longest, menu.Most = sim.OrFailOvers(seed, f.flaws, sim.Crash, sim.Drop, sim.Drop, sim.Drop, sim.Restart, sim.Freeze), 2*x.lease, 4
	}
	if r.IntN(8) == 0 || f.failureToo { // READs fail often, also such as have followers
		x.writes, x.clients, x.sessions, x.limit, x.lease = 4, 2, 6, longLimit, 10*time.Millisecond
		menu.Kinds, menu.Most = []sim.Kind{sim.Drop}, 12
	}
	if f.flaws != (sim.Flaws{}) { // clients that READ what others are changing, and little else
		x.writes, x.clients, x.limit, x.lease = 2, 3, longLimit, 10*time.Millisecond
		menu.Kinds, menu.Longest, menu.Most, menu.Parts = sim.OrFailOvers(seed, f.flaws), 2*x.lease, 8, 4*x.sessions*x.operations
	}
	for i := range x.clients {
		menu.Processes = append(menu.Processes, fmt.Sprint("client-", i))
	}
	plan := sim.NewPlan(w.Faults(), menu)
	if x.limit == shortLimit {
		plan.HoldFrozen = false
	}
	if given != nil {
		plan = given
	}
	var err error
	x.c, err = poolsim.New(w, poolsim.Options{Servers: 1, Locks: 64, Lease: x.lease, Fabric: sim.Options{Plan: plan, Flaws: f.flaws}})
	if err != nil {
		return x, plan, err
	}
	if err = w.Run(func(p *simenv.Process) {
		if err := x.body(p, keys, r); err != nil {
			w.Fail(err)
		}
	}); err != nil {
		return x, plan, err
	}
	if result, guilty := register.Check(x.ops); result != porcupine.Ok {
		var text strings.Builder
		for _, o := range guilty {
			fmt.Fprintf(&text, "  client %d, %d to %d: %s\n", o.ClientId, o.Call, o.Return, register.Model.DescribeOperation(o.Input, o.Output))
		}
		return x, plan, fmt.Errorf("history of %d operations is not linearizable (%v):\n%s", len(x.ops), result, text.String())
	}
	return x, plan, nil
}

// body is what happens in the world.
func (x *toy) body(p *simenv.Process, keys int, r *rand.Rand) error {
	first, err := x.open(p)
	if err != nil {
		return err
	}
	s, err := x.session(first, p)
	if err != nil {
		return err
	}
	for key := range keys {
		a, err := first.p.Allocate(leafBytes, pool.Nil)
		if err != nil {
			return err
		}
		build(s.b, a, key, false, nil)
		s.PS.Write(pool.Sole, a, s.b)
		if err := s.PS.Post(); err != nil {
			return err
		}
		x.leaves = append(x.leaves, a)
	}
	g := env.NewWaitGroup(p)
	for i := range x.clients {
		proc := p.World().NewProcess(fmt.Sprint("client-", i))
		done, seed := p.NewEvent(), r.Uint64()
		proc.Go("main", func() {
			defer done.Set()
			k, err := x.open(proc)
			if err != nil {
				if x.lease == 0 {
					x.w.Fail(err)
				}
				return
			}
			all := env.NewWaitGroup(proc)
			for n := range x.sessions {
				all.Go("session", func() {
					if err := x.work(proc, &k, i*x.sessions+n, seed+uint64(n)); err != nil {
						x.w.Fail(fmt.Errorf("client %d: %w", i, err))
					}
				})
			}
			all.Wait(env.Forever)
			x.delegated += k.reads.Delegated()
			x.combined += k.p.Combined()
		})
		g.Go("wait for a client", func() { done.Wait(env.Forever) })
	}
	g.Wait(env.Forever)
	x.c.Fabric.EndFaults()
	if x.lease > 0 {
		p.Sleep(2 * x.lease)
		if first, err = x.open(p); err != nil {
			return err
		}
		if s, err = x.session(first, p); err != nil {
			return err
		}
	}
	for key := range keys { // what is left has its place in the history, too
		call := x.tick()
		out, err := s.lookup(key)
		if err != nil {
			return err
		}
		x.ops = append(x.ops, porcupine.Operation{ClientId: 1000, Input: register.Input{Key: fmt.Sprint(key)}, Output: out, Call: call, Return: x.tick()})
	}
	return nil
}

// TestSeeds: the toy is linearizable, whoever stands still or dies when. It is what make sim
// DESIGN=combine runs.
func TestSeeds(t *testing.T) {
	seeds := simtest.Read(t, "combine", "pkg/index/internal/combine", 150)
	var plan *sim.Plan
	if s := os.Getenv(simtest.PlanVariable); s != "" {
		var err error
		if plan, err = sim.ParsePlan(s); err != nil {
			t.Fatal(err)
		}
	}
	var ops, delegated, combined, failed atomic.Uint64
	begun := time.Now()
	done, wrong := seeds.Each(func(seed uint64) (passed bool) {
		x, used, err := run(seed, faults{}, plan)
		ops.Add(uint64(len(x.ops)))
		delegated.Add(x.delegated)
		combined.Add(x.combined)
		failed.Add(x.failed)
		if err != nil {
			t.Errorf("seed %d: %v\n%s", seed, err, seeds.Replay(seed))
			small := sim.Shrink(used, func(p *sim.Plan) bool { _, _, err := run(seed, faults{}, p); return err != nil })
			t.Errorf("the smallest plan that fails, for %s: %v", simtest.PlanVariable, small)
		}
		return err == nil
	})
	t.Logf("combine: %d seeds, %.0f a second, %d failed; %d operations, %d READs and %d changes made for others, %d sessions died",
		done, float64(done)/time.Since(begun).Seconds(), wrong, ops.Load(), delegated.Load(), combined.Load(), failed.Load())
	if done >= 40 && (delegated.Load() == 0 || combined.Load() == 0) {
		t.Error("nothing was done for others")
	}
}

// TestFaultsAreFound: the toy finds faults that are put in on purpose.
func TestFaultsAreFound(t *testing.T) {
	const most = 600
	for _, f := range []struct {
		name   string
		faults faults
		from   uint64 // the first seed that is tried
	}{
		{"sessions join a READ that was posted", faults{joinLate: true}, 1},
		{"followers get what a leader has whose READ failed", faults{failureToo: true}, 1},
		{"the sample comes before the lock", faults{sampleFirst: true}, 1},
		{"changes are acknowledged and never written", faults{unwritten: true}, 1},
		{"answers to changes do not wait for the copy", faults{flaws: sim.Flaws{Writes: true, Swaps: true}}, 30},
		{"answers to READs do not wait for the copy", faults{flaws: sim.Flaws{Reads: true}}, 30},
	} {
		seed := f.from
		for ; seed < f.from+most; seed++ {
			if _, _, err := run(seed, f.faults, nil); err != nil {
				t.Logf("%s: seed %d", f.name, seed)
				if f.faults.flaws != (sim.Flaws{}) {
					if _, _, err := run(seed, faults{flaws: sim.Flaws{Sound: true}}, nil); err != nil {
						t.Errorf("%s: seed %d fails without it: %v", f.name, seed, err)
					}
				}
				break
			}
		}
		if seed == f.from+most {
			t.Errorf("%s: not found in %d seeds", f.name, most)
		}
	}
}
