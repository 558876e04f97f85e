package indexsim_test

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/index"
	_ "github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/index/indexsim"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// limitsName is what hack/sim calls these runs. With a design behind it there are those of that
// alone.
const limitsName = "limits"

// TestLimits runs designs with operations that end in the middle.
func TestLimits(t *testing.T) {
	names := []string{"sherman", "smart", "chime", "dex", "dolphin"}
	if only, ok := strings.CutPrefix(os.Getenv(designVariable), limitsName+"-"); ok {
		names = []string{only}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) { runLimits(t, designOf(t, name)) })
	}
}

func runLimits(t *testing.T, d index.Design) {
	var plan *sim.Plan
	if s := os.Getenv(simtest.PlanVariable); s != "" {
		var err error
		if plan, err = sim.ParsePlan(s); err != nil {
			t.Fatal(err)
		}
	}
	seeds := simtest.Read(t, limitsName+"-"+d.Name, "pkg/index/indexsim", 30)
	start := time.Now()
	var mu sync.Mutex
	var sum indexsim.LimitsReport
	done, failed := seeds.Each(func(seed uint64) (passed bool) {
		run := indexsim.Limits{Design: d, Seed: seed, Plan: plan}
		rep := run.Do()
		mu.Lock()
		defer mu.Unlock()
		sum.Events += rep.Events
		sum.Ops += rep.Ops
		sum.Late += rep.Late
		sum.Unknown += rep.Unknown
		sum.Refused += rep.Refused
		sum.Dead += rep.Dead
		sum.GivenUp += rep.GivenUp
		if rep.Err != nil {
			t.Errorf("%s, seed %d: %v\n%s", d.Name, seed, rep.Err, seeds.Replay(seed))
			small := sim.Shrink(rep.Plan, func(p *sim.Plan) bool {
				return indexsim.Limits{Design: d, Seed: seed, Plan: p}.Do().Err != nil
			})
			t.Errorf("the smallest plan that fails, for %s: %v", simtest.PlanVariable, small)
		}
		return rep.Err == nil
	})
	if done >= 30 && (sum.Late == 0 || sum.Unknown == 0 || sum.Dead == 0 || sum.GivenUp == 0) {
		t.Errorf("in %d seeds no operation was late, none ended without an answer, no session died, or no client was given up: %+v", done, sum)
	}
	t.Logf("%s: %d seeds from %d, %d operations, %d ended by their limit, %d of unknown outcome, %d refused for want of memory, %d sessions died, %d clients were given up, %d events: %.0f seeds per second; %d seeds fail",
		d.Name, done, seeds.First, sum.Ops, sum.Late, sum.Unknown, sum.Refused, sum.Dead, sum.GivenUp, sum.Events, float64(done)/time.Since(start).Seconds(), failed)
}
