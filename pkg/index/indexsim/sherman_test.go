package indexsim_test

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/indexsim"
	_ "github.com/dmindex/dmindex/pkg/index/sherman"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// designVariable names the design, "sherman" without it; hack/sim sets it.
const designVariable = "DMINDEX_SIM_DESIGN"

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
func fail(t *testing.T, seeds simtest.Seeds, run indexsim.Run, rep indexsim.Report) {
	t.Helper()
	t.Errorf("%s, seed %d: %v\n%s", run.Design.Name, run.Seed, rep.Err, seeds.Replay(run.Seed))
	small := sim.Shrink(rep.Plan, func(p *sim.Plan) bool {
		return indexsim.Run{Design: run.Design, Seed: run.Seed, Plan: p}.Do().Err != nil
	})
	t.Errorf("the smallest plan that fails, for %s: %v", simtest.PlanVariable, small)
}

// TestSeeds runs the design under the adversary.
func TestSeeds(t *testing.T) {
	d := design(t)
	var plan *sim.Plan
	if s := os.Getenv(simtest.PlanVariable); s != "" {
		var err error
		if plan, err = sim.ParsePlan(s); err != nil {
			t.Fatal(err)
		}
	}
	seeds := simtest.Read(t, d.Name, "pkg/index/indexsim", 500, 40)
	start := time.Now()
	var events, ops, inVain, refused, merged, reclaimed, combined atomic.Uint64
	var mu sync.Mutex
	done, failed := seeds.Each(func(seed uint64) (passed bool) {
		run := indexsim.Run{Design: d, Seed: seed, Plan: plan}
		rep := run.Do()
		events.Add(rep.Events)
		ops.Add(uint64(rep.Ops))
		inVain.Add(uint64(rep.InVain))
		refused.Add(uint64(rep.Refused))
		merged.Add(rep.Merged)
		reclaimed.Add(rep.Reclaimed)
		combined.Add(rep.Combined)
		if rep.Err != nil {
			mu.Lock()
			defer mu.Unlock()
			fail(t, seeds, run, rep)
		}
		return rep.Err == nil
	})
	took := time.Since(start)
	verdict := "no fault found"
	if failed > 0 {
		verdict = fmt.Sprintf("%d seeds fail", failed)
	}
	if done >= 40 && combined.Load() == 0 && slices.Contains(d.Switches, "writeCombining") {
		t.Errorf("in %d seeds no session carried out the change of another one", done)
	}
	t.Logf("%s: %d seeds from %d, %d operations, %d of them carried out for another session, %d more ended by their limit, %d refused for want of memory, %d nodes merged, %d reclaimed, %d events: %.0f seeds per second; %s",
		d.Name, done, seeds.First, ops.Load(), combined.Load(), inVain.Load(), refused.Load(), merged.Load(), reclaimed.Load(), events.Load(), float64(done)/took.Seconds(), verdict)
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
