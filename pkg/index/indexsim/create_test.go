package indexsim_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// creating is a run in which clients create an index together, each insert some keys, and are done,
// while a memory server fails over. What one of them was answered is there in the end: so nobody
// answers before the superblock and the root are safe, on whichever servers these lie.
type creating struct {
	design index.Design
	seed   uint64
	flaws  sim.Flaws
	died   int
}

const creatingLease = 10 * time.Millisecond

func (x *creating) run() error {
	w := simenv.New(simenv.Options{Seed: x.seed, Preempt: 6, MaxEvents: 2_000_000})
	plan := sim.NewPlan(w.Faults(), sim.Menu{
		Kinds: []sim.Kind{sim.FailOver}, Processes: []string{"client-0", "client-1", "client-2"}, Parts: 40, Most: 4, Longest: creatingLease / 4,
	})
	c, err := poolsim.New(w, poolsim.Options{Servers: 2, Locks: 64, Lease: creatingLease, Fabric: sim.Options{Plan: plan, Flaws: x.flaws}})
	if err != nil {
		return err
	}
	err = w.Run(func(p *simenv.Process) {
		g, answered := env.NewWaitGroup(p), map[string]bool{}
		for i := range 3 {
			proc, done := w.NewProcess(fmt.Sprint("client-", i)), p.NewEvent()
			proc.Go("main", func() {
				defer done.Set()
				for n := range 12 { // who was given up begins anew
					if err := x.insert(c, proc, i, n, answered); err == nil {
						return
					} else if !failedOver(err) {
						w.Fail(fmt.Errorf("client %d: %w", i, err))
					}
					proc.Sleep(creatingLease / 4)
				}
			})
			g.Go("wait", func() { done.Wait(env.Forever) })
		}
		g.Wait(env.Forever)
		c.Fabric.EndFaults()
		p.Sleep(2 * creatingLease)
		if err := x.last(c, p, answered); err != nil {
			w.Fail(err)
		}
	})
	x.died, _, _ = c.Fabric.FailOvers()
	return err
}

// failedOver reports whether err may come of a memory server that failed over.
func failedOver(err error) bool {
	for _, is := range []error{index.ErrUnknown, verbs.ErrDisconnected, verbs.ErrClosed, verbs.ErrTimeout, verbs.ErrRefused, index.ErrTimeout, index.ErrFenced, index.ErrUnreachable, index.ErrClosed} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

func (x *creating) open(c *poolsim.Cluster, p *simenv.Process) (opened index.Index, s index.Session, end func(), err error) {
	cl, err := c.Open(p)
	if err != nil {
		return nil, nil, nil, err
	}
	end = func() { _ = cl.Close() }
	if opened, err = x.design.Open(cl, index.Options{MaxKeyBytes: 16, MaxValueBytes: 24, NodeBytes: 512, CacheBytes: crashCache}); err == nil {
		s, err = opened.Session()
	}
	if err != nil {
		end()
	}
	return opened, s, end, err
}

// insert opens the index and inserts keys of client i.
func (x *creating) insert(c *poolsim.Cluster, p *simenv.Process, i, n int, answered map[string]bool) error {
	_, s, end, err := x.open(c, p)
	if err != nil {
		return err
	}
	defer end()
	for k := range 4 {
		key := fmt.Sprint("key ", i, n, k)
		if err := s.Insert([]byte(key), []byte("value")); err != nil {
			return err
		}
		answered[key] = true
	}
	return s.Close()
}

// last looks for all that was answered.
func (x *creating) last(c *poolsim.Cluster, p *simenv.Process, answered map[string]bool) error {
	opened, s, end, err := x.open(c, p)
	if err != nil {
		return err
	}
	defer end()
	for key := range answered {
		if v, err := s.Lookup([]byte(key), nil); err != nil || string(v) != "value" {
			return fmt.Errorf("%s was inserted, and is %q: %w", key, v, err)
		}
	}
	if err := s.Close(); err != nil {
		return err
	}
	_, err = opened.(index.Checker).Check()
	return err
}

// TestCreatedWhileServersFailOver: see creating. Where answers to atomics do not wait for the
// copy, SMART loses what was inserted, as a slot that was swapped is all that leads there. The
// others do not rest on a swap alone: who swapped Sherman's or CHIME's root asks the home server
// for a session before it inserts anything, and the first leaf of Dolphin is near its slot.
func TestCreatedWhileServersFailOver(t *testing.T) {
	eachDesign(t, func(t *testing.T, d index.Design, _ bool) {
		died := 0
		for seed := range uint64(20) {
			x := creating{design: d, seed: seed}
			if err := x.run(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			died += x.died
		}
		if t.Logf("%d fail-overs", died); died < 10 {
			t.Errorf("%d fail-overs", died)
		}
		for seed := range uint64(60) {
			x := creating{design: d, seed: seed, flaws: sim.Flaws{Swaps: true}}
			if d.Name != "smart" {
				return
			} else if err := x.run(); err != nil {
				t.Logf("found by seed %d: %v", seed, err)
				return
			}
		}
		t.Error("answers to atomics that do not wait are not found")
	})
}
