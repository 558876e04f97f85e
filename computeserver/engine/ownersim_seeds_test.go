package engine

import (
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
)

// TestSeeds (even seeds with DEX, the others with the toy): whatever happens to compute servers,
// memory servers and operators, no acknowledged write is lost, nobody reads anything else, and when
// the trouble is over every key is served again.
func TestSeeds(t *testing.T) {
	seeds := simtest.Read(t, "ownership", "computeserver/engine", 200)
	var mu sync.Mutex
	var sum ownReport
	begun := time.Now()
	done, failed := seeds.Each(func(seed uint64) (passed bool) {
		rep := ownRun{seed: seed, dex: seed%2 == 0}.do()
		if rep.err != nil {
			t.Errorf("%v\n%s", rep.err, seeds.Replay(seed))
		}
		mu.Lock()
		sum.acks += rep.acks
		sum.failed += rep.failed
		sum.grants += rep.grants
		sum.orphans += rep.orphans
		sum.replays += rep.replays
		sum.gives += rep.gives
		sum.swaps += rep.swaps
		sum.thaws += rep.thaws
		sum.deaths += rep.deaths
		sum.confirmed += rep.confirmed
		sum.lapses += rep.lapses
		sum.leveled += rep.leveled
		sum.scaled += rep.scaled
		sum.joined += rep.joined
		sum.blocks += rep.blocks
		sum.doomed += rep.doomed
		sum.deferred += rep.deferred
		sum.forgotten += rep.forgotten
		sum.crowded += rep.crowded
		sum.logs = max(sum.logs, rep.logs)
		sum.wide.add(rep.wide)
		sum.additions.used += rep.additions.used
		sum.additions.again += rep.additions.again
		mu.Unlock()
		return rep.err == nil
	})
	t.Logf("ownership: %d seeds, %.0f a second, %d failed; %d requests answered, %d not done; %d maps, %d grants, %d of orphans' keys, "+
		"%d logs replayed, %d ranges given, %d refused for want of memory, %d for too many holdings; %d deaths, %d clients confirmed dead by the next process, %d owners that lapsed, %d processes that stood still; %d times ranges moved because of load, %d times the operator scaled, %d runs of ranges joined; %d long values in the end; %d clients forgotten; %d died while they replayed, at most %d logs in a holding; %d chunks on memory servers that joined, %d connections to these by clients with an id that was given before; %s",
		done, float64(done)/time.Since(begun).Seconds(), failed, sum.acks, sum.failed, sum.swaps, sum.grants, sum.orphans, sum.replays, sum.gives, sum.deferred, sum.crowded, sum.deaths, sum.confirmed, sum.lapses, sum.thaws, sum.leveled, sum.scaled, sum.joined, sum.blocks, sum.forgotten, sum.doomed, sum.logs, sum.additions.used, sum.additions.again, &sum.wide)
	// The rarest, a change of the number of servers, comes in one run of ten to twenty: fewer runs
	// may be without by chance.
	if seeds.Count >= 200 && (sum.orphans == 0 || sum.replays == 0 || sum.gives == 0 || sum.thaws == 0 || sum.deaths == 0 || sum.confirmed == 0 || sum.lapses == 0 || sum.leveled == 0 || sum.scaled == 0 || sum.joined == 0 || sum.blocks == 0 || sum.doomed == 0 || sum.deferred == 0 || sum.crowded == 0 || sum.forgotten == 0 || sum.additions.used == 0 || sum.additions.again == 0 || sum.wide.tame()) {
		t.Error("the adversary is tame")
	}
}

// TestSeedsCatchMistakes: each fault that is put in on purpose is found. A run's seed decides
// whether it meets a fault, so each search begins shortly before the seed that meets it: the runs
// before that one find nothing, and would take most of the time of this package. Where the worlds
// of seeds change, the log says which seed finds a fault then.
func TestSeedsCatchMistakes(t *testing.T) {
	const within = 1500
	for _, x := range []struct {
		wrong mistake
		dex   bool
		from  uint64
	}{
		{settleFirst, false, 0}, {settleFirst, true, 0},
		{giveUnflushed, false, 0},
		{replyEarly, true, 0}, // the toy has no log to wait for
		{takenForDead, false, 21}, {takenForDead, true, 15},
		{readNotHeld, true, 415},
		{releaseAnyEpoch, false, 94}, {releaseAnyEpoch, true, 135},
		{leaseTooLong, false, 68}, {leaseTooLong, true, 368},
		{fencedHere, false, 308}, {fencedHere, true, 0},
		{giveAtOnce, false, 6},
		{anyGeneration, false, 106},
		{clockStops, false, 357},
		{unmirrored, false, 0},
	} {
		name := string(x.wrong)
		if x.dex {
			name += ", with DEX"
		}
		t.Run(name, func(t *testing.T) {
			for seed := x.from; seed < x.from+within; seed++ {
				if rep := (ownRun{seed: seed, wrong: x.wrong, dex: x.dex}).do(); rep.err != nil {
					t.Logf("caught by seed %d: %.300v", seed, rep.err)
					return
				}
			}
			t.Errorf("not caught by %d seeds from %d on", within, x.from)
		})
	}
}

// TestSeedsReplay: a run is a function of its seed.
func TestSeedsReplay(t *testing.T) {
	for seed := range uint64(5) {
		run := ownRun{seed: seed, dex: seed%2 == 0}
		first, second := run.do(), run.do()
		if first.hash != second.hash || first.acks != second.acks {
			t.Errorf("seed %d: two runs differ", seed)
		}
	}
}
