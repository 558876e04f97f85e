package mirror_test

import (
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
)

// TestSeeds: whatever happens to servers and to what connects them, no answer says less than one
// before it, copies are equal, and all is in sync soon after.
func TestSeeds(t *testing.T) {
	seeds := simtest.Read(t, "mirror", "memserver/mirror", 40)
	var mu sync.Mutex
	var sum counts
	voids, longest, begun := 0, time.Duration(0), time.Now()
	done, failed := seeds.Each(func(seed uint64) (passed bool) {
		o := run{seed: seed}.do()
		if o.err != nil {
			t.Errorf("%v\n%s", o.err, seeds.Replay(seed))
		}
		mu.Lock()
		defer mu.Unlock()
		sum.add(o.counts)
		if o.void {
			voids++
		} else {
			longest = max(longest, o.took)
		}
		return o.err == nil
	})
	t.Logf("mirror: %d seeds, %.0f a second, %d failed; %+v; %d ended when the last copy was lost; in sync %v after the last trouble at the latest", done, float64(done)/time.Since(begun).Seconds(), failed, sum, voids, longest)
	if voids > int(done)/10+1 {
		t.Errorf("the last copy was lost in %d of %d runs: the adversary leaves too little to judge", voids, done)
	}
	if seeds.Count >= 40 && (sum.opened == 0 || sum.resumed == 0 || sum.stops == 0 || sum.late == 0 || sum.breaks == 0 || sum.wipes == 0) {
		t.Error("the adversary is tame")
	}
}
