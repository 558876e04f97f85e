package indexsim_test

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/indexsim"
	_ "github.com/dmindex/dmindex/pkg/index/sherman"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// Environment of the tests: hack/sim sets it.
const (
	seedsVariable  = "DMINDEX_SIM_SEEDS"  // how many seeds
	seedVariable   = "DMINDEX_SIM_SEED"   // the first of them; alone, one seed is run
	planVariable   = "DMINDEX_SIM_PLAN"   // JSON of the adversary's plan, instead of the seed's own
	designVariable = "DMINDEX_SIM_DESIGN" // "sherman"
)

func number(t testing.TB, name string, otherwise uint64) uint64 {
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

func design(t testing.TB) index.Design {
	name := os.Getenv(designVariable)
	if name == "" {
		name = "sherman"
	}
	d, err := index.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// fail says what went wrong and how to see it again, with the smallest plan that shows it.
func fail(t *testing.T, run indexsim.Run, rep indexsim.Report) {
	t.Helper()
	replay := simenv.Replay("")
	if !invariants.Enabled { // another build: other choices
		replay = seedsVariable + "=1 go test -run '^TestSeeds$' ./pkg/index/indexsim"
	}
	t.Errorf("%s, seed %d: %v\nreplay with %s=%d %s", run.Design.Name, run.Seed, rep.Err, seedVariable, run.Seed, replay)
	small := sim.Shrink(rep.Plan, func(p *sim.Plan) bool {
		return indexsim.Run{Design: run.Design, Seed: run.Seed, Plan: p}.Do().Err != nil
	})
	t.Errorf("the smallest plan that fails, for %s: %v", planVariable, small)
}

// TestSeeds runs the design under the adversary.
func TestSeeds(t *testing.T) {
	d := design(t)
	var plan *sim.Plan
	if s := os.Getenv(planVariable); s != "" {
		var err error
		if plan, err = sim.ParsePlan(s); err != nil {
			t.Fatal(err)
		}
	}
	n := number(t, seedsVariable, 500)
	if testing.Short() {
		n = min(n, 40)
	}
	first := number(t, seedVariable, 1)
	start := time.Now()
	var next, events, ops, inVain, refused, merged, reclaimed atomic.Uint64
	var mu sync.Mutex
	failed := 0
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) { // worlds know nothing of each other
		workers.Go(func() {
			for {
				i := next.Add(1) - 1
				mu.Lock()
				enough := i >= n || failed >= 3
				mu.Unlock()
				if enough {
					return
				}
				run := indexsim.Run{Design: d, Seed: first + i, Plan: plan}
				rep := run.Do()
				events.Add(rep.Events)
				ops.Add(uint64(rep.Ops))
				inVain.Add(uint64(rep.InVain))
				refused.Add(uint64(rep.Refused))
				merged.Add(rep.Merged)
				reclaimed.Add(rep.Reclaimed)
				if rep.Err != nil {
					mu.Lock()
					failed++
					fail(t, run, rep)
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	took := time.Since(start)
	verdict := "no fault found"
	if failed > 0 {
		verdict = fmt.Sprintf("%d seeds fail", failed)
	}
	t.Logf("%s: %d seeds from %d, %d operations, %d more ended by their limit, %d refused for want of memory, %d nodes merged, %d reclaimed, %d events: %.0f seeds per second; %s",
		d.Name, n, first, ops.Load(), inVain.Load(), refused.Load(), merged.Load(), reclaimed.Load(), events.Load(), float64(n)/took.Seconds(), verdict)
}

// TestRunReplays: the same seed is the same run, to the last event.
func TestRunReplays(t *testing.T) {
	for seed := range uint64(10) {
		run := indexsim.Run{Design: design(t), Seed: seed}
		a, b := run.Do(), run.Do()
		if a.Hash != b.Hash || a.Events != b.Events || a.Time != b.Time {
			t.Errorf("seed %d: %d events until %v with hash %#x, then %d until %v with %#x",
				seed, a.Events, a.Time, a.Hash, b.Events, b.Time, b.Hash)
		}
	}
}
