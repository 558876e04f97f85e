package poolsim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestRepairerHalfFenced stops the repairer of a half-made RewriteAll after every part of its requests, and fences it on some of the
// memory servers only. A third client repairs as far as it may and changes the nodes. Then the repairer goes on: no change that was
// confirmed may be lost, whichever servers still take the repairer's requests.
func TestRepairerHalfFenced(t *testing.T) {
	runs, step := 0, 1
	if testing.Short() {
		step = 5
	}
	for part := 1; ; part += step {
		whole := halfFenced{part: part, stop: 1 << 20, masked: true}
		if err := whole.run(t); err != nil {
			t.Fatalf("victim dead after part %d: %v", part, err)
		}
		if !whole.crashed {
			break
		}
		if !whole.repaired {
			continue
		}
		for stop := 1; ; stop += step {
			stopped := false
			for _, fenced := range [][]uint16{{1}, {2}, {2, 3}} {
				h := halfFenced{part: part, stop: stop, fenced: fenced, masked: (part+stop)%2 == 0}
				if err := h.run(t); err != nil {
					t.Fatalf("victim dead after part %d, repairer stopped after part %d and fenced on %v first, masked atomics %v: %v", part, stop, fenced, h.masked, err)
				}
				runs++
				stopped = stopped || h.stopped
			}
			if !stopped {
				break
			}
		}
	}
	t.Logf("%d runs", runs)
	if runs == 0 {
		t.Error("there was nothing to repair")
	}
}

// TestBundlerHalfFenced is the same with a client that makes the bundle in the place of the repairer.
func TestBundlerHalfFenced(t *testing.T) {
	runs := 0
	for stop := 1; ; stop++ {
		stopped := false
		for _, fenced := range [][]uint16{{1}, {2}, {3}, {1, 2}, {2, 3}} {
			h := halfFenced{stop: stop, fenced: fenced, masked: stop%2 == 0}
			if err := h.run(t); err != nil {
				t.Fatalf("stopped after part %d and fenced on %v first, masked atomics %v: %v", stop, fenced, h.masked, err)
			}
			runs++
			stopped = stopped || h.stopped
		}
		if !stopped {
			break
		}
	}
	t.Logf("%d runs", runs)
}

// halfFenced is one run.
type halfFenced struct {
	part   int // after which the client dies that makes the bundle; 0 = it is the one that stops, and there is no repairer
	stop   int
	fenced []uint16 // the servers that fence who stopped while it stands still; the others do so later
	masked bool

	crashed, stopped, repaired bool
}

const standsStill = 60 * time.Millisecond

func (h *halfFenced) run(t *testing.T) error {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 1_000_000})
	plan := &sim.Plan{
		Capabilities: verbs.Capabilities{MaskedAtomics: h.masked, WholeWrite: 8}, Tear: 2, Delay: 100, Gap: 100, HoldFrozen: true,
		Faults: []sim.Fault{{Kind: sim.Freeze, Process: "stopped", Part: h.stop, For: standsStill}},
	}
	if h.part > 0 {
		plan.Faults = append(plan.Faults, sim.Fault{Kind: sim.Crash, Process: "victim", Part: h.part})
	}
	c, err := poolsim.New(w, poolsim.Options{Servers: 3, Locks: 64, Chunks: 3, ChunkBytes: 16 << 10, Fabric: sim.Options{Plan: plan}})
	if err != nil {
		t.Fatal(err)
	}
	return w.Run(func(p *simenv.Process) {
		if err := h.body(t, c, p); err != nil {
			w.Fail(err)
		}
	})
}

func (h *halfFenced) body(t *testing.T, c *poolsim.Cluster, p *simenv.Process) error {
	w := p.World()
	cl, err := c.Open(p)
	must(t, err)
	var nodes []pool.Addr
	for len(nodes) < 3 { // one on each server, the main one on the first
		a, err := cl.Allocate(bundleNode, pool.Nil)
		must(t, err)
		nodes = append(nodes, a)
	}
	all := []uint16{1, 2, 3}
	if h.part > 0 {
		victim, over := w.NewProcess("victim"), p.NewEvent()
		var id uint16
		victim.Go("main", func() {
			defer over.Set()
			cl, err := c.Open(victim)
			must(t, err)
			id = cl.Client()
			newBundler(t, cl, nodes).all(0)
		})
		over.Wait(env.Forever)
		if h.crashed = victim.Dead(); !h.crashed {
			return nil
		}
		for _, server := range all {
			must(t, c.Control(p).Fence(server, []uint16{id}, time.Second))
		}
	}

	// The one that stops changes the nodes, or repairs what the victim left.
	stopped, done := w.NewProcess("stopped"), p.NewEvent()
	var id uint16
	var failed error
	stopped.Go("main", func() {
		defer done.Set()
		var cl *pool.Pool
		if cl, failed = c.Open(stopped); failed != nil {
			return
		}
		id = cl.Client()
		b := newBundler(t, cl, nodes)
		if h.part == 0 {
			failed = b.tryAll(0)
		} else if failed = b.sessions[0].Lock(nodes[0], b.node[0]); failed == nil {
			failed = b.sessions[0].PostUnlock()
		}
		h.repaired = cl.Repaired() > 0
	})
	if done.Wait(standsStill / 3) { // it was through before it stopped
		return nil
	}
	h.stopped = true
	if id == 0 {
		return nil // it stood still before it had anything to do
	}
	for _, server := range h.fenced {
		must(t, c.Control(p).Fence(server, []uint16{id}, time.Second))
	}
	later := p.NewEvent()
	p.Go("fence on the other servers", func() {
		defer later.Set()
		p.Sleep(2 * standsStill)
		for _, server := range all {
			must(t, c.Control(p).Fence(server, []uint16{id}, time.Second))
		}
	})
	b := newBundler(t, cl, nodes)
	bundles := b.one(0)
	for range 3 {
		b.one(1)
		b.one(2)
	}
	want := [][2]uint64{{bundles, 1}, {bundles, 3}, {bundles, 3}}
	judge := func(when string) error {
		for i := range nodes {
			if got := b.look(i); got != want[i] {
				return fmt.Errorf("node %d says %v %s, want %d bundles and %d changes", i, got, when, want[i][0], want[i][1])
			}
		}
		return nil
	}
	if err := judge("before the one that stopped goes on"); err != nil {
		return err
	}
	done.Wait(env.Forever)
	later.Wait(env.Forever)
	return judge("after the one that stopped went on")
}
