package poolsim_test

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// halfFenced is a run in which a client stands still after some part of its requests, is fenced on
// some memory servers meanwhile, and then goes on.
type halfFenced struct {
	// after which a victim dies in the middle of a change; 0 = the one that stops makes the change,
	// else it repairs
	part int
	stop int
	// the servers that fence who stopped while it stands still; the others do so later
	fenced []uint16
	masked bool
	// the first server has no memory for those who make changes: their images lie elsewhere
	full bool
	seed uint64 // above 0, requests to one server are late beside those to another

	crashed, stopped, repaired bool
}

const standsStill = 60 * time.Millisecond

// run runs body in a simulated cluster of so many memory servers.
func (h *halfFenced) run(t *testing.T, servers int, body func(c *poolsim.Cluster, p *simenv.Process) error) error {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: 1 + h.seed, MaxEvents: 1_000_000})
	delay := 100 * time.Nanosecond
	if h.seed > 0 {
		delay *= 10
	}
	plan := &sim.Plan{
		Capabilities: verbs.Capabilities{MaskedAtomics: h.masked, WholeWrite: 8}, Tear: 2, Delay: delay, Gap: 100, HoldFrozen: true,
		Faults: []sim.Fault{{Kind: sim.Freeze, Process: "stopped", Part: h.stop, For: standsStill}},
	}
	if h.part > 0 {
		plan.Faults = append(plan.Faults, sim.Fault{Kind: sim.Crash, Process: "victim", Part: h.part})
	}
	c, err := poolsim.New(w, poolsim.Options{Servers: servers, Locks: 64, Chunks: 3, ChunkBytes: 16 << 10, Fabric: sim.Options{Plan: plan}})
	if err != nil {
		t.Fatal(err)
	}
	return w.Run(func(p *simenv.Process) {
		if err := body(c, p); err != nil {
			w.Fail(err)
		}
	})
}

// act lets the victim die, and the other one stand still; each makes change, or repairs what the
// victim left. It returns what waits until the one that stopped has gone on and is fenced
// everywhere; nil if there is nothing to see in this run.
func (h *halfFenced) act(t *testing.T, c *poolsim.Cluster, p *simenv.Process, nodes []pool.Addr, change, repair func(*bundler) error) (rest func()) {
	w, all := p.World(), c.Control(p).Servers()
	fence := func(id uint32, servers []uint16) {
		for _, server := range servers {
			must(t, c.Control(p).Fence(server, []uint32{id}, time.Second))
		}
	}
	if h.part > 0 {
		victim, over := w.NewProcess("victim"), p.NewEvent()
		var id uint32
		victim.Go("main", func() {
			defer over.Set()
			cl, err := c.Open(victim)
			must(t, err)
			id = cl.Client()
			must(t, change(newBundler(t, cl, nodes)))
		})
		over.Wait(env.Forever)
		if h.crashed = victim.Dead(); !h.crashed {
			return nil
		}
		fence(id, all)
	}
	stopped, done := w.NewProcess("stopped"), p.NewEvent()
	var id uint32
	stopped.Go("main", func() {
		defer done.Set()
		cl, err := c.Open(stopped)
		if err != nil {
			return
		}
		id = cl.Client()
		if b := newBundler(t, cl, nodes); h.part == 0 {
			_ = change(b)
		} else {
			_ = repair(b)
		}
		h.repaired = cl.Repaired() > 0
	})
	if done.Wait(standsStill / 3) { // it was through before it stopped
		return nil
	}
	if h.stopped = true; id == 0 {
		return nil // it stood still before it had anything to do
	}
	fence(id, h.fenced)
	later := p.NewEvent()
	p.Go("fence on the other servers", func() {
		defer later.Set()
		p.Sleep(2 * standsStill)
		fence(id, all)
	})
	return func() {
		done.Wait(env.Forever)
		later.Wait(env.Forever)
	}
}
