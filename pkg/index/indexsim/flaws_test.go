package indexsim_test

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/index/indexsim"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestFlawsAreFound: memory servers that answer WRITEs before their copies have them are found by
// runs of designs that pass without the fault.
func TestFlawsAreFound(t *testing.T) {
	const within = 150
	// From the seeds on that find it.
	for design, from := range map[string]uint64{"sherman": 16, "smart": 35} {
		t.Run(design, func(t *testing.T) {
			run := indexsim.Run{Design: designOf(t, design)}
			for run.Seed = from; run.Seed < from+within; run.Seed++ {
				run.Flaws = sim.Flaws{Writes: true}
				if rep := run.Do(); rep.Err == nil {
					continue
				} else if t.Logf("seed %d: %.200v", run.Seed, rep.Err); rep.FailOvers == 0 {
					t.Error("no memory server failed over")
				}
				run.Flaws = sim.Flaws{Sound: true}
				if err := run.Do().Err; err != nil {
					t.Errorf("seed %d, without the fault: %v", run.Seed, err)
				}
				return
			}
			t.Errorf("not found by %d seeds", within)
		})
	}
}
