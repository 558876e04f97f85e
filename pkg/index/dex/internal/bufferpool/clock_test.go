package bufferpool

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/pkg/pool"
)

// TestDeparturesAreNotTakenBack lets leaves of several shards depart at once, all of which share a
// time, as no lock is common to them. A departure that is over is found by every reader that looked
// at the clock before it, whatever departures are late.
func TestDeparturesAreNotTakenBack(t *testing.T) {
	rounds := 2_000_000
	if testing.Short() {
		rounds /= 4
	}
	for name, of := range map[string]struct {
		depart func(d *Clock)
		found  func(d *Clock, since uint64) bool
	}{
		"of a leaf": {
			func(d *Clock) { d.record(pool.NewAddr(1, 1<<20)) },
			func(d *Clock, since uint64) bool { return d.After(pool.NewAddr(1, 9<<20), since) },
		},
		"of all leaves": {
			(*Clock).RecordAll,
			func(d *Clock, since uint64) bool { return d.all.Load() > since },
		},
	} {
		t.Run(name, func(t *testing.T) {
			var d Clock
			d.start(1)
			var others sync.WaitGroup
			var over atomic.Bool
			for range 3 {
				others.Go(func() {
					for !over.Load() {
						of.depart(&d)
					}
				})
			}
			defer others.Wait()
			defer over.Store(true)
			for n := range rounds {
				since := d.clock.Load()
				of.depart(&d)
				if !of.found(&d, since) {
					t.Fatalf("after %d departures: a leaf departed after the clock showed %d, and its time is %d", n, since, d.last[0].Load())
				}
			}
		})
	}
}

// TestTimesNeverFall raises a time by a departure that is later than another one's clock.
func TestTimesNeverFall(t *testing.T) {
	var d Clock
	var time atomic.Uint64
	time.Store(7) // of a departure that was faster
	d.clock.Store(4)
	if d.raise(&time); time.Load() != 7 {
		t.Errorf("the time fell from 7 to %d", time.Load())
	}
	d.clock.Store(11)
	if d.raise(&time); time.Load() != 12 {
		t.Errorf("the time is %d after a departure at 12", time.Load())
	}
}
