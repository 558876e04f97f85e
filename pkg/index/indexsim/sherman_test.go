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
	_ "github.com/dmindex/dmindex/pkg/index/chime"
	_ "github.com/dmindex/dmindex/pkg/index/dolphin"
	"github.com/dmindex/dmindex/pkg/index/indexsim"
	_ "github.com/dmindex/dmindex/pkg/index/sherman"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// designVariable names the design; hack/sim sets it.
const designVariable = "DMINDEX_SIM_DESIGN"

// design is that one, Sherman without it.
func design(t testing.TB) index.Design {
	name := os.Getenv(designVariable)
	if name == "" {
		name = "sherman"
	}
	return designOf(t, name)
}

// eachSweepingDesign runs a test with the design of the variable, or with each one that sweeps.
func eachSweepingDesign(t *testing.T, run func(t *testing.T, d index.Design)) {
	if os.Getenv(designVariable) != "" {
		run(t, design(t))
		return
	}
	for _, name := range []string{"smart", "dolphin"} {
		t.Run(name, func(t *testing.T) { run(t, designOf(t, name)) })
	}
}

func designOf(t testing.TB, name string) index.Design {
	t.Helper()
	d, err := index.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// eachDesign runs a test with the design that is named, or with all. Those that come after Sherman
// run less of it: the adversary, the pool and the judges are the same.
func eachDesign(t *testing.T, run func(t *testing.T, d index.Design, less bool)) {
	if os.Getenv(designVariable) != "" {
		run(t, design(t), false)
		return
	}
	for _, name := range []string{"sherman", "smart", "chime", "dolphin"} {
		t.Run(name, func(t *testing.T) { run(t, designOf(t, name), name != "sherman") })
	}
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

// TestSeeds runs designs under the adversary.
func TestSeeds(t *testing.T) { eachDesign(t, runSeeds) }

func runSeeds(t *testing.T, d index.Design, less bool) {
	var plan *sim.Plan
	if s := os.Getenv(simtest.PlanVariable); s != "" {
		var err error
		if plan, err = sim.ParsePlan(s); err != nil {
			t.Fatal(err)
		}
	}
	most := uint64(500)
	if less {
		most = 150
	}
	seeds := simtest.Read(t, d.Name, "pkg/index/indexsim", most)
	start := time.Now()
	var events, ops, inVain, refused, merged, reclaimed, combined, delegated, sweeps, swept, failOvers, again, undone atomic.Uint64
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
		delegated.Add(rep.Delegated)
		sweeps.Add(uint64(rep.Sweeps))
		swept.Add(uint64(rep.Swept))
		failOvers.Add(uint64(rep.FailOvers))
		again.Add(uint64(rep.Again))
		undone.Add(uint64(rep.Undone))
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
	if done >= 40 && delegated.Load() == 0 && slices.Contains(d.Switches, "readDelegation") {
		t.Errorf("in %d seeds no session made the READ of another one", done)
	}
	if done >= 100 && undone.Load() == 0 {
		t.Errorf("in %d seeds %d memory servers failed over, and lost nothing", done, failOvers.Load())
	}
	if done >= 500 && again.Load() == 0 {
		t.Errorf("in %d seeds no memory server failed over before all clients had heard of its last time", done)
	}
	t.Logf("%s: %d seeds from %d, %d operations, %d of them carried out for another session, %d READs made for another one, %d more ended by their limit, %d refused for want of memory, %d nodes merged, %d reclaimed, %d of clients that died given back by %d sweeps, %d fail-overs, %d of them before all clients had heard of the last one, that undid %d changes, %d events: %.0f seeds per second; %s",
		d.Name, done, seeds.First, ops.Load(), combined.Load(), delegated.Load(), inVain.Load(), refused.Load(), merged.Load(), reclaimed.Load(), swept.Load(), sweeps.Load(), failOvers.Load(), again.Load(), undone.Load(), events.Load(), float64(done)/took.Seconds(), verdict)
}

// TestRunReplays: the same seed is the same run, to the last event.
func TestRunReplays(t *testing.T) {
	eachDesign(t, func(t *testing.T, d index.Design, less bool) {
		seeds := uint64(10)
		if less {
			seeds = 4
		}
		for seed := range seeds {
			run := indexsim.Run{Design: d, Seed: seed}
			a, b := run.Do(), run.Do()
			if a.Hash != b.Hash || a.Events != b.Events || a.Time != b.Time {
				t.Errorf("seed %d: %d events until %v with hash %#x, then %d until %v with %#x",
					seed, a.Events, a.Time, a.Hash, b.Events, b.Time, b.Hash)
			}
		}
	})
}
