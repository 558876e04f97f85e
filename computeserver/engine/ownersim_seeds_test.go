package engine

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/env/simenv"
)

// Environment of the simulation: hack/sim sets it.
const (
	seedsVariable = "DMINDEX_SIM_SEEDS" // how many seeds
	seedVariable  = "DMINDEX_SIM_SEED"  // the first of them
)

func simNumber(t testing.TB, name string, otherwise uint64) uint64 {
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestSeeds (even seeds with DEX, the others with the toy): whatever happens to compute servers,
// memory servers and operators, no acknowledged write is lost, nobody reads anything else, and when
// the trouble is over every key is served again.
func TestSeeds(t *testing.T) {
	n := simNumber(t, seedsVariable, 200)
	if testing.Short() {
		n = min(n, 16)
	}
	first := simNumber(t, seedVariable, 1)
	var next, failed atomic.Uint64
	var mu sync.Mutex
	var sum ownReport
	begun := time.Now()
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < n && failed.Load() < 3; i = next.Add(1) - 1 {
				rep := ownRun{seed: first + i, dex: (first+i)%2 == 0}.do()
				if rep.err != nil {
					failed.Add(1)
					replay := simenv.Replay("ownership")
					if !invariants.Enabled { // another build: other choices
						replay = seedsVariable + "=1 go test -run '^TestSeeds$' ./computeserver/engine"
					}
					t.Errorf("%v\nreplay with %s=%d %s", rep.err, seedVariable, first+i, replay)
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
				sum.proven += rep.proven
				sum.lapses += rep.lapses
				sum.leveled += rep.leveled
				sum.scaled += rep.scaled
				sum.joined += rep.joined
				sum.blocks += rep.blocks
				sum.doomed += rep.doomed
				sum.deferred += rep.deferred
				sum.logs = max(sum.logs, rep.logs)
				sum.wide.add(rep.wide)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	done := min(next.Load(), n)
	t.Logf("ownership: %d seeds, %.0f a second, %d failed; %d requests answered, %d not done; %d maps, %d grants, %d of orphans' keys, "+
		"%d logs replayed, %d ranges given, %d refused for want of memory; %d deaths, %d clients proven dead by the next process, %d owners that lapsed, %d processes that stood still; %d times ranges moved because of load, %d times the operator scaled, %d runs of ranges joined; %d long values in the end; %d died while they replayed, at most %d logs in a holding; %s",
		done, float64(done)/time.Since(begun).Seconds(), failed.Load(), sum.acks, sum.failed, sum.swaps, sum.grants, sum.orphans, sum.replays, sum.gives, sum.deferred, sum.deaths, sum.proven, sum.lapses, sum.thaws, sum.leveled, sum.scaled, sum.joined, sum.blocks, sum.doomed, sum.logs, &sum.wide)
	// The rarest, a change of the number of servers, comes in one run of ten to twenty: fewer runs
	// may be without by chance.
	if n >= 200 && (sum.orphans == 0 || sum.replays == 0 || sum.gives == 0 || sum.thaws == 0 || sum.deaths == 0 || sum.proven == 0 || sum.lapses == 0 || sum.leveled == 0 || sum.scaled == 0 || sum.joined == 0 || sum.blocks == 0 || sum.doomed == 0 || sum.deferred == 0 || sum.wide.tame()) {
		t.Error("the adversary is tame")
	}
}

// inDex are the mistakes that are made with DEX, too.
var inDex = []mistake{settleFirst, releaseAnyEpoch, leaseTooLong, fencedHere, takenForDead}

// TestSeedsCatchMistakes: each fault that is put in on purpose is found.
func TestSeedsCatchMistakes(t *testing.T) {
	const within = 1500
	mistakes := []mistake{settleFirst, giveUnflushed}
	// these take up to 300 seeds; with the race detector each seed takes some 90 MiB that never
	// come back
	if !testing.Short() {
		mistakes = append(mistakes, takenForDead, releaseAnyEpoch, leaseTooLong, fencedHere, giveAtOnce, anyGeneration, clockStops)
	}
	for _, wrong := range mistakes {
		for _, real := range []bool{false, true} {
			name := string(wrong)
			if real {
				name += ", with DEX"
			}
			if real && !slices.Contains(inDex, wrong) {
				continue
			}
			t.Run(name, func(t *testing.T) {
				for seed := range uint64(within) {
					if rep := (ownRun{seed: seed, wrong: wrong, dex: real}).do(); rep.err != nil {
						t.Logf("caught by seed %d: %.300v", seed, rep.err)
						return
					}
				}
				t.Errorf("not caught by %d seeds", within)
			})
		}
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
