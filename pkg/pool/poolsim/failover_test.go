package poolsim_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// lockCut is a run in which a memory server fails over while a client rewrites a node, again and
// again, under its lock. The next client takes the lock at once, finds the node whole, and changes
// a word of it in place. It dies with the lock, so a third one repairs.
type lockCut struct {
	seed  uint64
	part  int
	locks sim.Lock // what is wrong with locks

	died, given, torn, stale bool
}

const cutNode = 256

func (x *lockCut) run(t *testing.T) error {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: x.seed, MaxEvents: 1_000_000})
	plan := &sim.Plan{
		Capabilities: verbs.Capabilities{WholeWrite: 8}, Tear: 2, Delay: 1000, Gap: 1000,
		Faults: []sim.Fault{{Kind: sim.FailOver, Process: "holder", Part: x.part, At: sim.Through, For: 3 * lease}},
	}
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 4, Lease: lease, Fabric: sim.Options{Plan: plan, Flaws: sim.Flaws{Locks: x.locks}}})
	must(t, err)
	return w.Run(func(p *simenv.Process) {
		if err := x.in(t, c, p); err != nil {
			w.Fail(err)
		}
	})
}

func (x *lockCut) in(t *testing.T, c *poolsim.Cluster, p *simenv.Process) error {
	t.Helper()
	cl, err := c.Open(p)
	must(t, err)
	node, err := cl.Allocate(cutNode, pool.Nil)
	must(t, err)
	must(t, cl.Close())
	acked, over := byte(0), p.NewEvent()
	holder := p.World().NewProcess("holder")
	holder.Go("main", func() {
		defer over.Set()
		if cl, err := c.Open(holder); err == nil {
			s := seats(t, cl, 1)[0]
			for v := byte(1); v < 4 && rewriteNode(&s, node, v) == nil; v++ {
				acked = v
			}
		}
	})
	for c.Server(1).Restarts() == 0 && !over.Wait(time.Microsecond) {
	}
	if x.died = c.Server(1).Restarts() > 0; !x.died {
		return nil
	}
	known, began := acked, p.Now()
	victim, held := p.World().NewProcess("next"), p.NewEvent()
	var words []byte
	victim.Go("main", func() {
		cl, err := c.Open(victim)
		must(t, err)
		s := seats(t, cl, 1)[0]
		for err = s.s.Lock(node, s.node); errors.Is(err, pool.ErrTimeout); err = s.s.Lock(node, s.node) {
			s.s.Begin()
		}
		must(t, err)
		words = slices.Clone(s.node)
		copy(s.node[8:], slices.Repeat([]byte{99}, 8))
		s.s.Write(pool.Shared, node+8, s.node[8:16])
		must(t, s.s.PostUnlock())
		must(t, s.s.Lock(node, s.node))
		held.Set()
		victim.Sleep(time.Hour)
	})
	held.Wait(env.Forever)
	victim.Kill()
	x.given = p.Now()-began < lease/2
	if got := words[0]; got != known && got != known+1 {
		return fmt.Errorf("the node says %d, and %d was answered", got, known)
	}
	if !slices.Equal(words, slices.Repeat(words[:1], cutNode)) {
		x.torn = true
		return fmt.Errorf("the next client finds the node torn: %x", words)
	}
	cl, err = c.Open(p)
	must(t, err)
	s := seats(t, cl, 1)[0]
	for err = s.s.Lock(node, s.node); errors.Is(err, pool.ErrTimeout); err = s.s.Lock(node, s.node) {
		s.s.Begin()
	}
	must(t, err)
	if s.node[8] != 99 || s.node[0] != words[0] {
		x.stale = true
		return fmt.Errorf("repair undid a change that was answered: %x", s.node[:16])
	}
	return nil
}

// rewriteNode rewrites the node at a: all of its bytes are v.
func rewriteNode(s *seat, a pool.Addr, v byte) error {
	if err := s.s.Lock(a, s.node); err != nil {
		return err
	}
	if err := s.s.ReserveRewrite(a, cutNode); err != nil {
		return errors.Join(err, s.s.PostUnlock())
	}
	for i := range s.node {
		s.node[i] = v
	}
	s.s.Rewrite(a, s.node)
	return s.s.PostUnlock()
}

// eachCut fails servers over behind lists of the holder that are through, in several worlds.
func eachCut(t *testing.T, locks sim.Lock) (given, torn, stale int, first error) {
	t.Helper()
	for part := 1; ; part += 60 {
		died := false
		for seed := range uint64(12) {
			x := lockCut{seed: seed, part: part, locks: locks}
			if err := x.run(t); err != nil && first == nil {
				first = fmt.Errorf("seed %d, part %d: %w", seed, part, err)
			}
			died = died || x.died
			for n, is := range map[*int]bool{&given: x.given, &torn: x.torn, &stale: x.stale} {
				if is {
					*n++
				}
			}
		}
		if !died {
			return given, torn, stale, first
		}
	}
}

// TestLocksFailOver: locks turn to REPAIR, whoever had them. Where they do not, the next holder
// finds a node that is torn, or one whose record says that it is, for a later repair to find.
func TestLocksFailOver(t *testing.T) {
	if given, _, _, err := eachCut(t, 0); err != nil || given < 80 {
		t.Errorf("%d locks were given at once: %v", given, err)
	}
	for _, locks := range []sim.Lock{sim.Kept, sim.Freed} {
		_, torn, stale, err := eachCut(t, locks)
		if torn+stale == 0 {
			t.Errorf("fault %d: %d nodes are torn, %d changes undone: %v", locks, torn, stale, err)
		}
		t.Logf("fault %d: %d nodes are torn, %d changes undone: %v", locks, torn, stale, err)
	}
}

// rootCut is a run in which a memory server fails over just behind an answer to a swap of the root,
// or to a READ of it beside swaps. No answer says an older root than one that was given before.
func rootCut(t *testing.T, seed uint64, f sim.Fault, flaws sim.Flaws) (died int, err error) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: seed, MaxEvents: 1_000_000})
	f.Kind = sim.FailOver
	plan := &sim.Plan{Capabilities: verbs.Capabilities{WholeWrite: 8}, Delay: 10_000, Stall: 4, StallFor: 100_000, Faults: []sim.Fault{f}}
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 4, Chunks: 1, Lease: lease, Fabric: sim.Options{Plan: plan, Flaws: flaws}})
	must(t, err)
	err = w.Run(func(p *simenv.Process) {
		known, g := pool.Nil, env.NewWaitGroup(p)
		act := func(name string, act func(s *pool.Session) error) {
			proc, over := w.NewProcess(name), p.NewEvent()
			proc.Go("main", func() {
				defer over.Set()
				for range 4 {
					if cl, err := c.Open(proc); err == nil {
						s := seats(t, cl, 1)[0].s
						for n := 0; n < 20 && err == nil; n++ {
							err = act(s)
						}
					}
				}
			})
			g.Go(name, func() { over.Wait(env.Forever) })
		}
		look := func(s *pool.Session) error {
			before := known
			root, err := s.Root()
			if err == nil && root < before {
				w.Fail(fmt.Errorf("the root is %v, and it was %v", root, before))
			}
			if err == nil {
				known = max(known, root)
			}
			return err
		}
		act("looker", look)
		act("swapper", func(s *pool.Session) error {
			root, err := s.Root()
			if err != nil {
				return err
			}
			next := max(root, pool.NewAddr(1, 0)) + 64
			won, _, err := s.SwapRoot(root, next)
			if won {
				known = max(known, next)
			}
			return err
		})
		g.Wait(env.Forever)
	})
	died, _, _ = c.Fabric.FailOvers()
	return died, err
}

// TestAnswersFailOver: what was answered is so behind a fail-over. An answer that does not wait for
// what it says is found at the moment at which it is given.
func TestAnswersFailOver(t *testing.T) {
	for _, x := range []struct {
		fault sim.Fault
		flaws sim.Flaws
	}{
		{sim.Fault{Process: "swapper", At: sim.Swapped}, sim.Flaws{Swaps: true}},
		{sim.Fault{Process: "looker", At: sim.Seen}, sim.Flaws{Reads: true}},
	} {
		died, found := 0, 0
		for seed := range uint64(30) {
			x.fault.Part = 10 + int(seed)
			n, err := rootCut(t, seed, x.fault, sim.Flaws{})
			if died += n; err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			if _, err := rootCut(t, seed, x.fault, x.flaws); err != nil {
				found++
			}
		}
		if t.Logf("%v: %d of 30 fail over, %+v is found by %d", x.fault.At, died, x.flaws, found); died < 10 || found == 0 {
			t.Errorf("%v: %d of 30 fail over, %+v is found by %d", x.fault.At, died, x.flaws, found)
		}
	}
}
