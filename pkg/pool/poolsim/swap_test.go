package poolsim_test

import (
	"encoding/json"
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

// TestSwapHalfFenced stops a client after every part of its requests that changes the root word on one server and a node on another one together, or that repairs
// what another client left of such a change, and fences it on one of the servers only. Others then find both changes made or none, and what they change stays.
func TestSwapHalfFenced(t *testing.T) {
	runs, repairs := 0, 0
	for part := 0; ; part++ { // 0: the client that stops is the one that makes the change
		crashed, repaired := part == 0, part == 0
		if part > 0 {
			h := swapRun{part: part, stop: 1 << 20, fenced: []uint16{1}}
			if err := h.run(t); err != nil {
				t.Fatalf("victim dead after part %d: %v", part, err)
			}
			crashed, repaired = h.crashed, h.repaired
		}
		if !crashed {
			break
		}
		for stop := 1; repaired; stop++ {
			stopped := false
			for _, fenced := range [][]uint16{{1}, {2}, {1, 2}} {
				for _, rootFirst := range []bool{false, true} {
					h := swapRun{part: part, stop: stop, fenced: fenced, rootFirst: rootFirst}
					if err := h.run(t); err != nil {
						t.Fatalf("victim dead after part %d, stopped after part %d and fenced on %v first, the lock of the root first %v: %v", part, stop, fenced, rootFirst, err)
					}
					runs++
					stopped = stopped || h.stopped
					if h.repaired {
						repairs++
					}
				}
			}
			if !stopped {
				break
			}
		}
	}
	t.Logf("%d runs, in %d of them the one that stopped had repaired something before", runs, repairs)
	if repairs == 0 {
		t.Error("there was nothing to repair")
	}
}

// swapRun is one run.
type swapRun struct {
	part, stop int
	fenced     []uint16
	rootFirst  bool // whose lock the others take first

	crashed, stopped, repaired bool
}

func (h *swapRun) run(t *testing.T) error {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 1_000_000})
	plan := &sim.Plan{
		Capabilities: verbs.Capabilities{MaskedAtomics: h.stop%2 == 0, WholeWrite: 8}, Tear: 2, Delay: 100, Gap: 100, HoldFrozen: true,
		Faults: []sim.Fault{{Kind: sim.Freeze, Process: "stopped", Part: h.stop, For: standsStill}},
	}
	if h.part > 0 {
		plan.Faults = append(plan.Faults, sim.Fault{Kind: sim.Crash, Process: "victim", Part: h.part})
	}
	c, err := poolsim.New(w, poolsim.Options{Servers: 2, Locks: 64, Chunks: 3, ChunkBytes: 16 << 10, Fabric: sim.Options{Plan: plan}})
	if err != nil {
		t.Fatal(err)
	}
	return w.Run(func(p *simenv.Process) {
		if err := h.body(t, c, p); err != nil {
			w.Fail(err)
		}
	})
}

func (h *swapRun) body(t *testing.T, c *poolsim.Cluster, p *simenv.Process) error {
	w := p.World()
	cl, err := c.Open(p)
	must(t, err)
	var nodes []pool.Addr // the second one is the root, and lies on the second server; the third one becomes the root
	for len(nodes) < 3 {
		a, err := cl.Allocate(bundleNode, pool.Nil)
		must(t, err)
		nodes = append(nodes, a)
	}
	b := newBundler(t, cl, nodes)
	_, err = b.sessions[0].CreateSuperblock("swaps", json.RawMessage("{}"), nodes[1])
	must(t, err)
	fence := func(id uint16, servers ...uint16) {
		for _, server := range servers {
			must(t, c.Control(p).Fence(server, []uint16{id}, time.Second))
		}
	}
	if h.part > 0 {
		victim, over := w.NewProcess("victim"), p.NewEvent()
		var id uint16
		victim.Go("main", func() {
			defer over.Set()
			cl, err := c.Open(victim)
			must(t, err)
			id = cl.Client()
			_ = newBundler(t, cl, nodes).shrink()
		})
		over.Wait(env.Forever)
		if h.crashed = victim.Dead(); !h.crashed {
			return nil
		}
		fence(id, 1, 2)
	}
	stopped, done := w.NewProcess("stopped"), p.NewEvent()
	var id uint16
	stopped.Go("main", func() {
		defer done.Set()
		cl, err := c.Open(stopped)
		if err != nil {
			return
		}
		id = cl.Client()
		b := newBundler(t, cl, nodes)
		if h.part == 0 {
			_ = b.shrink()
		} else if b.sessions[1].Lock(nodes[1], b.node[1]) == nil {
			_ = b.sessions[1].PostUnlock()
		}
		h.repaired = cl.Repaired() > 0
	})
	if done.Wait(standsStill / 3) {
		return nil
	}
	if h.stopped = true; id == 0 {
		return nil
	}
	fence(id, h.fenced...)
	later := p.NewEvent()
	p.Go("fence on the other servers", func() {
		defer later.Set()
		p.Sleep(2 * standsStill)
		fence(id, 1, 2)
	})

	takeRoot := func() pool.Addr {
		root, err := b.sessions[0].LockRoot(b.node[0])
		must(t, err)
		return root
	}
	if h.rootFirst {
		takeRoot()
		must(t, b.sessions[0].PostUnlock())
	}
	made := b.one(1)
	root := takeRoot()
	if want := map[uint64]pool.Addr{0: nodes[1], 1: nodes[2]}[made]; root != want {
		return fmt.Errorf("the node says %d changes, and the root is %v", made, root)
	}
	won, _, err := b.sessions[0].SwapRoot(root, nodes[0])
	must(t, err)
	must(t, b.sessions[0].PostUnlock())
	if !won {
		return fmt.Errorf("the root changes under its lock")
	}
	done.Wait(env.Forever)
	later.Wait(env.Forever)
	root = takeRoot()
	must(t, b.sessions[0].PostUnlock())
	if got := b.look(1); root != nodes[0] || got != [2]uint64{made, 1} {
		return fmt.Errorf("after the one that stopped went on the root is %v, and the node says %v, want %v, %d and 1", root, got, nodes[0], made)
	}
	return nil
}

// shrink counts a bundle in node 1, if that is the root, and makes node 2 the root.
func (b *bundler) shrink() error {
	s, o := b.sessions[1], b.sessions[0]
	if err := s.Lock(b.nodes[1], b.node[1]); err != nil {
		return err
	}
	root, ok, err := o.TryLockRoot(b.node[0])
	if err != nil {
		return err
	}
	if !ok || root != b.nodes[1] {
		b.t.Errorf("the root is %v, locked %v", root, ok)
	}
	b.change(1, 1, 0)
	return pool.RewriteAndSwap(bundleNode, pool.RootSwap{Session: o, From: root, To: b.nodes[2]}, pool.Change{Session: s, Node: b.nodes[1], Image: b.image[1]})
}
