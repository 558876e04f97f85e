package indexsim_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/audit"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestSweepsBesideOperations: clients insert, move and delete few pairs, so that all of the tree
// comes and goes, and sweep all the time. Nobody dies. So no sweep has anything to give back, and
// in the end no memory is lost.
func TestSweepsBesideOperations(t *testing.T) { eachSweepingDesign(t, sweepsBesideOperations) }

func sweepsBesideOperations(t *testing.T, d index.Design) {
	seeds := uint64(24)
	sweeps := 0
	for seed := range seeds {
		sweeps += sweepsBeside(t, d, seed)
	}
	t.Logf("%d sweeps", sweeps)
	if sweeps < int(seeds)*3 {
		t.Errorf("only %d sweeps came to their end", sweeps)
	}
}

func sweepsBeside(t *testing.T, d index.Design, seed uint64) (sweeps int) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: seed, Preempt: 6, MaxEvents: 50_000_000})
	plan := &sim.Plan{Capabilities: verbs.Capabilities{WholeWrite: 8}, Tear: 2, Reorder: true, Delay: 2000, Gap: 300}
	r := rand.New(rand.NewPCG(seed, 1))
	for range 60 { // some of them between the swap that takes a node out and its dead mark
		plan.Faults = append(plan.Faults, sim.Fault{Kind: sim.Freeze, Process: fmt.Sprint("client ", r.IntN(3)), Part: 1 + r.IntN(30_000), For: time.Duration(1+r.IntN(20)) * 100 * time.Microsecond})
	}
	cl, err := poolsim.New(w, poolsim.Options{
		Servers: 1 + int(seed)%3, Locks: 16, Chunks: 16, ChunkBytes: 64 << 10, RenewEvery: 20 * time.Microsecond, Fabric: sim.Options{Plan: plan},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Run(func(p *simenv.Process) {
		fail := func(err error) bool {
			if err != nil {
				w.Fail(err)
			}
			return err != nil
		}
		o := index.Options{MaxKeyBytes: 40, MaxValueBytes: 60, InlineBytes: []int{0, 12}[seed%2]}
		var pools []*pool.Pool
		var x index.Index
		all := env.NewWaitGroup(p)
		for n := range 3 {
			v := w.NewProcess(fmt.Sprint("client ", n))
			opened, ended := p.NewEvent(), p.NewEvent()
			v.Go("main", func() {
				defer ended.Set()
				pl, err := cl.Open(v)
				var ix index.Index
				if err == nil {
					ix, err = d.Open(pl, o)
				}
				if fail(err) {
					return
				}
				pools, x = append(pools, pl), ix
				opened.Set()
				over, swept := false, v.NewEvent()
				v.Go("sweeps", func() {
					defer swept.Set()
					for !over {
						n, err := ix.(index.Sweeper).Sweep()
						if n > 0 {
							w.Fail(fmt.Errorf("a sweep gave back %d nodes, and nobody died", n))
						}
						if fail(err) {
							return
						}
						sweeps++
					}
				})
				g := env.NewWaitGroup(v)
				for m := range 2 {
					g.Go("session", func() { fail(comeAndGo(ix, rand.New(rand.NewPCG(seed, uint64(10*n+m))))) })
				}
				g.Wait(env.Forever)
				over = true
				swept.Wait(env.Forever)
			})
			opened.Wait(env.Forever)
			all.Go("wait for a client", func() { ended.Wait(env.Forever) })
		}
		all.Wait(env.Forever)
		found, err := x.(index.Checker).Check()
		if fail(err) {
			return
		}
		r, err := audit.Compare(cl.Chunks(), found.Parts(), pools)
		if fail(err) {
			return
		}
		for _, n := range r.Lost {
			if !n.Dead {
				w.Fail(fmt.Errorf("node %v of %d bytes is lost", n.Addr, len(n.Memory)))
			}
		}
	})
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	return sweeps
}

// comeAndGo changes few pairs.
func comeAndGo(x index.Index, r *rand.Rand) error {
	s, err := x.Session()
	if err != nil {
		return err
	}
	s.SetLimit(time.Minute)
	const stem = "a common prefix"
	for range 300 {
		key := fmt.Appendf(nil, "%s%d", stem[:5*r.IntN(4)], r.IntN(20))
		if r.IntN(2) == 0 {
			err = s.Upsert(key, make([]byte, r.IntN(60)))
		} else if err = s.Delete(key); err == index.ErrNotFound {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return s.Close()
}

// TestSweepBesideALoad: a sweep that is asked for while a bulk load waits for its source is
// refused, and one that was under way when the load began gives back nothing of it.
func TestSweepBesideALoad(t *testing.T) { eachSweepingDesign(t, sweepBesideALoad) }

func sweepBesideALoad(t *testing.T, d index.Design) {
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 5_000_000})
	cl, err := poolsim.New(w, poolsim.Options{Servers: 2, RenewEvery: 100 * time.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Run(func(p *simenv.Process) {
		pl, err := cl.Open(p)
		if err != nil {
			w.Fail(err)
			return
		}
		x, err := d.Open(pl, sweepOptions)
		if err != nil {
			w.Fail(err)
			return
		}
		before := p.NewEvent()
		p.Go("a sweep that began before", func() {
			defer before.Set()
			if n, err := x.(index.Sweeper).Sweep(); n != 0 || err != nil {
				w.Fail(fmt.Errorf("a sweep that began before gave back %d nodes: %w", n, err))
			}
		})
		p.Sleep(10 * time.Microsecond)
		err = x.BulkLoad(func(yield func(key, value []byte) bool) error {
			for n := range 600 {
				if !yield(fmt.Appendf(nil, "key %04d", n), []byte("value")) {
					break
				}
				if n%200 == 100 {
					p.Sleep(20 * time.Millisecond)
					if n, err := x.(index.Sweeper).Sweep(); n != 0 || err == nil {
						return fmt.Errorf("a sweep beside a load gave back %d nodes: %w", n, errors.Join(err, errors.New("it was not refused")))
					}
				}
			}
			return nil
		}, 2)
		before.Wait(env.Forever)
		if err == nil {
			var n int
			if n, err = x.(index.Sweeper).Sweep(); n != 0 {
				err = fmt.Errorf("a sweep behind a load gave back %d nodes", n)
			}
		}
		if err == nil {
			var found index.Structure
			if found, err = x.(index.Checker).Check(); err == nil && found.Pairs != 600 {
				err = fmt.Errorf("%d pairs, want 600", found.Pairs)
			}
		}
		if err != nil {
			w.Fail(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
