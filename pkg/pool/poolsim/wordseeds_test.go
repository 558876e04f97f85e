package poolsim_test

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestSeeds: nodes that are counted under lock words are whole, no count is lost, and own bits say
// what the node says, whoever dies when. It is what make sim DESIGN=words runs.
func TestSeeds(t *testing.T) {
	seeds := simtest.Read(t, "words", "pkg/pool/poolsim", 300)
	var plan *sim.Plan
	if s := os.Getenv(simtest.PlanVariable); s != "" {
		var err error
		plan, err = sim.ParsePlan(s)
		must(t, err)
	}
	var repaired atomic.Uint64
	begun := time.Now()
	done, failed := seeds.Each(func(seed uint64) (passed bool) {
		run := wordRun{seed: seed, plan: plan}
		err := run.do(t)
		repaired.Add(run.repaired)
		if err != nil {
			t.Errorf("%v\n%s", err, seeds.Replay(seed))
			small := sim.Shrink(run.plan, func(p *sim.Plan) bool { return (&wordRun{seed: seed, plan: p}).do(t) != nil })
			t.Errorf("the smallest plan that fails, for %s: %v", simtest.PlanVariable, small)
		}
		return err == nil
	})
	t.Logf("words: %d seeds, %.0f a second, %d failed; %d repairs", done, float64(done)/time.Since(begun).Seconds(), failed, repaired.Load())
	if repaired.Load() == 0 && done >= 30 {
		t.Error("there was nothing to repair")
	}
}

// TestWordFaultsAreFound: the toy finds faults that are put in on purpose.
func TestWordFaultsAreFound(t *testing.T) {
	const most = 400
	for _, f := range []struct {
		name   string
		faults wordFaults
	}{
		{"the release comes before the WRITE", wordFaults{releaseFirst: true}},
		{"a fence frees words", wordFaults{toFree: true}},
		{"a fence loses own bits", wordFaults{ownLost: true}},
		{"a fence marks nothing as owed", wordFaults{nothingOwed: true}},
		{"own bits are not made anew", wordFaults{noRebuild: true}},
		{"answers to atomics do not wait for the copy", wordFaults{flaws: sim.Flaws{Swaps: true}}},
	} {
		seed := uint64(0)
		for ; seed < most; seed++ {
			if err := (&wordRun{seed: seed, faults: f.faults}).do(t); err != nil {
				t.Logf("%s: %v", f.name, err)
				if f.faults.flaws != (sim.Flaws{}) {
					must(t, (&wordRun{seed: seed, faults: wordFaults{flaws: sim.Flaws{Sound: true}}}).do(t))
				}
				break
			}
		}
		if seed == most {
			t.Errorf("%s: not found in %d seeds", f.name, most)
		}
	}
}
