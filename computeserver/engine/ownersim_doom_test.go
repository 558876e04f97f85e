package engine

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
)

// doom is of takers that die one after the other while they replay.
type doom struct {
	left int // so many more
	done int
	most int  // logs that a holding had to replay
	only bool // there is no other trouble
}

// clients is how many there may be.
func (w *ownWorld) clients() int {
	if w.doom.only {
		return 8 * ownClients
	}
	return ownClients
}

// dooms lets the process that is to replay logs die during that, or soon after, as long as
// some have to.
func (w *ownWorld) dooms(p *simenv.Process, r pool.Holding) bool {
	if len(r.Inherits) == 0 || w.doom.left == 0 || !w.begun || w.quiet {
		return false
	}
	w.doom.left--
	w.doom.done++
	// up to a millisecond; half of them within one microsecond
	w.After(time.Duration(w.Random.Int64N(1<<w.Random.IntN(21))), nil, p.Kill)
	return true
}

// meetDoom lets a compute server die, and whoever replays its log then, until it is enough.
func (w *ownWorld) meetDoom() {
	if !w.doom.only {
		return
	}
	for begun := w.Now(); w.doom.left > 0 && w.Now()-begun < time.Hour; w.main.Sleep(w.UpTo(2 * time.Second)) {
		if all := w.running(); len(all) > 0 {
			all[w.Random.IntN(len(all))].process.Kill()
		}
	}
}

// TestDeathsInTake: 200 compute servers die one after the other while they take keys and replay
// what their owners left. The next one that lives serves them, and nothing is lost; no holding ever
// has many logs to replay.
func TestDeathsInTake(t *testing.T) {
	const deaths = 200
	seeds := []uint64{0, 2}
	if testing.Short() {
		seeds = seeds[:1]
	}
	for _, seed := range seeds {
		rep := ownRun{seed: seed, dex: true, doomed: deaths}.do()
		if rep.err != nil {
			t.Errorf("seed %d: %v", seed, rep.err)
		}
		t.Logf("seed %d: %d takers died, at most %d logs to replay; %d requests answered", seed, rep.doomed, rep.logs, rep.acks)
		if rep.doomed != deaths || rep.logs > 16 {
			t.Errorf("seed %d: %d takers died, of %d; a holding had %d logs to replay", seed, rep.doomed, deaths, rep.logs)
		}
	}
}
