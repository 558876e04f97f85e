package indexsim_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

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
	t.Errorf("%s, seed %d: %v\nreplay with %s=%d hack/sim 1", run.Design.Name, run.Seed, rep.Err, seedVariable, run.Seed)
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
	n := number(t, seedsVariable, 300)
	if testing.Short() {
		n = min(n, 40)
	}
	first := number(t, seedVariable, 1)
	start := time.Now()
	var events uint64
	ops, failed := 0, 0
	for seed := first; seed < first+n && failed < 3; seed++ {
		run := indexsim.Run{Design: d, Seed: seed, Plan: plan}
		rep := run.Do()
		events += rep.Events
		ops += rep.Ops
		if rep.Err != nil {
			failed++
			fail(t, run, rep)
		}
	}
	took := time.Since(start)
	verdict := "no fault found"
	if failed > 0 {
		verdict = fmt.Sprintf("%d seeds fail", failed)
	}
	t.Logf("%s: %d seeds from %d, %d operations, %d events: %.0f seeds per second; %s",
		d.Name, n, first, ops, events, float64(n)/took.Seconds(), verdict)
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
