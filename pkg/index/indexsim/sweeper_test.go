package indexsim_test

import (
	"testing"
)

// TestSweeperDies kills one client amidst its deletes, or its load, and the one that sweeps behind
// it after each part of its requests. The next one finds what is left.
func TestSweeperDies(t *testing.T) {
	t.Run("deletes", func(t *testing.T) {
		sweeperDies(t, sweepCrash{design: designOf(t, "smart"), first: 200, adopted: true, change: sweepChanges[1].change}, 7)
	})
	t.Run("load", func(t *testing.T) {
		sweeperDies(t, sweepCrash{design: designOf(t, "dolphin"), first: 240, empty: true, change: sweepChanges[3].change}, 5)
	})
}

// sweeperDies is TestSweeperDies with what is the same for all runs. Of so many parts the sweeper
// dies after one.
func sweeperDies(t *testing.T, of sweepCrash, stride int) {
	runs, swept := 0, 0
	for seed := range 2 {
		for part := 1 + seed; ; part += stride {
			c := of
			c.seed, c.part, c.sweeper = uint64(seed), part, true
			c.first += part % 50
			if c.do(t) {
				break
			}
			runs, swept = runs+1, swept+c.swept
		}
	}
	t.Logf("%d sweepers died; others gave back %d nodes", runs, swept)
	if runs < 10 || swept == 0 {
		t.Errorf("%d sweepers died, and others gave back %d nodes: this tests nothing", runs, swept)
	}
}

// TestSweepsComeByThemselves: a client that has adopted a chunk sweeps soon, without being told.
func TestSweepsComeByThemselves(t *testing.T) {
	d := designOf(t, "smart")
	lost, swept := 0, 0
	for part := 300; part < 340; part += 4 { // amidst a load
		c := sweepCrash{design: d, seed: 1, part: part, change: sweepChanges[3].change, empty: true, itself: true}
		if c.do(t) {
			t.Fatalf("the load is over after %d parts", part)
		}
		lost, swept = lost+c.lost, swept+c.swept
	}
	if lost < 100 || swept != 0 {
		t.Errorf("%d nodes were lost, and a sweep that came later gave back %d", lost, swept)
	}
}
