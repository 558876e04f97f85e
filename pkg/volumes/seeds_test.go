package volumes

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
)

// current is the process that runs.
func (w *world) current() *simenv.Process { return w.Current().Process() }

// lateAnswer reports whether a request that was made after the trouble was answered.
func (w *world) lateAnswer() bool {
	for i := len(w.log) - 1; i >= 0 && w.log[i].call > w.healed; i-- {
		if !w.log[i].unknown {
			return true
		}
	}
	return false
}

func (w *world) dump() string {
	var b strings.Builder
	for _, d := range w.pods {
		if d.gone {
			continue
		}
		fmt.Fprintf(&b, "\n  %s moving %v, stored %+v", d.name, d.moving, d.stored)
		if d.server != nil && d.server.m != nil {
			m := d.server.m
			fmt.Fprintf(&b, ", %v is %v in view %v of %v, peers %+v", m.self, m.role, m.view, m.source, m.peers)
		}
	}
	return b.String()
}

// TestSeeds: whatever happens to servers, operators and what connects them, a server that answers
// has all that was answered, the history of each word is that of a word, and the volume is in sync
// soon after.
func TestSeeds(t *testing.T) {
	seeds := simtest.Read(t, "volumes", "pkg/volumes", 300)
	var mu sync.Mutex
	var sum counts
	voids, longest := 0, time.Duration(0)
	begun := time.Now()
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
	t.Logf("volumes: %d seeds, %.0f a second, %d failed; %+v; %d ended when the last copy was lost; in sync %v after the last trouble at the latest", done, float64(done)/time.Since(begun).Seconds(), failed, sum, voids, longest)
	if voids > int(done)/20+1 {
		t.Errorf("the last copy was lost in %d of %d runs: the adversary leaves too little to judge", voids, done)
	}
	if seeds.Count >= 200 && (sum.opened == 0 || sum.switched == 0 || sum.stops == 0 || sum.again == 0 || sum.restored == 0 || sum.losses == 0 || sum.deletes == 0 || sum.aside == 0 || sum.wipes == 0 || sum.forgotten == 0) {
		t.Error("the adversary is tame")
	}
}

// TestSeedsReplay: a run is a function of its seed.
func TestSeedsReplay(t *testing.T) {
	for seed := range uint64(3) {
		first, second := run{seed: seed}.do(), run{seed: seed}.do()
		if first.hash != second.hash || first.counts != second.counts {
			t.Errorf("seed %d: two runs differ", seed)
		}
	}
}
