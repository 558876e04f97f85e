package core

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// The accounts, tokens, leases and fences of the memory server under the adversary: see
// fenceworld_test.go.

// fenceRun is one run of the fence world; plan = nil takes the seed's own.
type fenceRun struct {
	seed  uint64
	plan  *sim.Plan
	wrong mistake
}

// fenceReport is what became of it.
type fenceReport struct {
	err     error
	plan    *sim.Plan
	hash    uint64
	answers int
	late    int
	fenced  int
	expired int
	reused  int
	adopted int
}

func (r fenceRun) do() fenceReport {
	world := simenv.New(simenv.Options{Seed: r.seed, Preempt: 4 + int(r.seed%8), MaxEvents: 5_000_000})
	random := rand.New(rand.NewPCG(r.seed, 78))
	clients := 1 + random.IntN(4)
	var names []string
	for n := range clients {
		names = append(names, clientName(n))
	}
	plan := r.plan
	if plan == nil {
		plan = sim.NewPlan(world.Faults(), sim.Menu{
			Kinds:     sim.OrFailOvers(r.seed, sim.Flaws{}, sim.Crash, sim.Freeze, sim.Freeze, sim.Drop, sim.Restart, sim.Drift, sim.Jump),
			Processes: names, Parts: 1000, Most: 8, Longest: 2 * simLease, Drift: simDrift,
		})
	}
	w := &fenceWorld{Stage: &simtest.Stage{World: world, Random: random, Drift: simDrift}, fabric: sim.New(world, sim.Options{Plan: plan, Flaws: sim.Flaws{Control: r.wrong == unmirrored}}), wrong: r.wrong, estate: newEstate(), memory: []verbs.Memory{
		{ID: verbs.RegionData, Bytes: make([]byte, simClients*ownBytes)},
		{ID: verbs.RegionLocks, Bytes: make([]byte, countersFrom+8*simClients)},
	}}
	err := world.Run(func(p *simenv.Process) {
		w.main = p
		w.serve()
		for n := range clients {
			w.client(n)
		}
		w.trouble()
		p.Sleep(simLease*3 + w.UpTo(6*simLease))
		w.settle()
	})
	rep := fenceReport{err: errors.Join(w.Problem, err), plan: plan, hash: world.Hash(), answers: w.answers, late: w.late, reused: w.reused, adopted: w.adopted}
	if w.Problem != nil {
		rep.err = fmt.Errorf("seed %d: %w", r.seed, w.Problem)
	}
	for id := range w.ended {
		if w.ended[id] != nil {
			rep.fenced++
		}
		if w.expired[id] {
			rep.expired++
		}
	}
	return rep
}

// trouble is what the plan does not do: fences at random moments, and the server's process standing
// still or dying.
func (w *fenceWorld) trouble() {
	fencer := w.NewDrifting("fencer")
	fencer.Go("fence", func() {
		for !w.over {
			fencer.Sleep(w.UpTo(3 * simLease / 2))
			var ids []uint32
			for range 1 + w.Random.IntN(3) {
				ids = append(ids, uint32(1+w.Random.IntN(min(simClients-1, w.lives+3))))
			}
			if w.over || !w.fence(fencer, ids) {
				continue
			}
			fencer.Go("take over", func() {
				fencer.Sleep(simLease)
				for _, id := range ids {
					w.taken[id] = true
				}
			})
		}
	})
	w.main.Go("trouble", func() {
		for !w.over {
			w.main.Sleep(w.UpTo(4 * simLease))
			switch server := w.server; {
			case w.over:
			case w.OneIn(2):
				w.die()
			default:
				server.Freeze()
				w.After(w.UpTo(2*simLease), nil, server.Thaw)
			}
		}
	})
	w.main.Go("judge", func() {
		for !w.over {
			w.main.Sleep(w.UpTo(time.Millisecond))
			w.look()
		}
	})
}

// settle ends all clients and sees to it that the server finishes with each of them, by itself
// where it had a lease.
func (w *fenceWorld) settle() {
	w.over = true
	for _, p := range w.living {
		if w.OneIn(2) {
			p.Kill()
		}
	}
	var left []uint32
	for range 1000 {
		w.main.Sleep(simLease)
		c := w.core
		if c == nil {
			continue
		}
		left = left[:0]
		var leases, unfinished int
		c.Accounts.Read(func(l *ledger.Ledger) {
			all, _ := l.Clients(simIndex, "")
			for _, client := range all {
				if !client.Fenced {
					left = append(left, client.Number)
				}
			}
			leases, unfinished = len(c.Accounts.leases.list), len(l.Unfinished(simIndex))
		})
		if leases > 0 || unfinished > 0 {
			continue
		}
		for _, id := range left { // it never connected
			if !w.fence(w.main, []uint32{id}) {
				w.Report("client %d cannot be fenced", id)
			}
		}
		w.look()
		for _, p := range w.living {
			p.Kill()
		}
		w.look()
		for at := 0; at < 2*simLocks; at += 8 {
			for shift, word := 0, *w.core.Locks.word(uint64(at)); shift < 64; shift += 16 {
				if holder := uint16(word >> shift); holder != 0 && holder != ledger.NoClient {
					w.Report("all clients are fenced, and a lock names client %d", holder)
				}
			}
		}
		return
	}
	w.Report("the server does not finish: %v are left, and %d fences", left, w.core.Accounts.fences.len())
}

// TestSeeds: no request of a fenced client takes effect after Fence returned, and no fenced or
// expired owner answers anything.
func TestSeeds(t *testing.T) {
	seeds := simtest.Read(t, "fence", "memserver", 300)
	var plan *sim.Plan
	if s := os.Getenv(simtest.PlanVariable); s != "" {
		var err error
		if plan, err = sim.ParsePlan(s); err != nil {
			t.Fatal(err)
		}
	}
	var answers, late, fenced, expired, reused, adopted atomic.Int64
	begun := time.Now()
	done, failed := seeds.Each(func(seed uint64) (passed bool) {
		run := fenceRun{seed: seed, plan: plan}
		rep := run.do()
		if rep.err != nil {
			failSeed(t, seeds, run, rep)
		}
		answers.Add(int64(rep.answers))
		late.Add(int64(rep.late))
		fenced.Add(int64(rep.fenced))
		expired.Add(int64(rep.expired))
		reused.Add(int64(rep.reused))
		adopted.Add(int64(rep.adopted))
		return rep.err == nil
	})
	t.Logf("fence: %d seeds, %.0f a second, %d failed; %d answers, %d held back at the second look, %d clients fenced, %d of them by their lease; "+
		"%d nodes used again, %d chunks adopted",
		done, float64(done)/time.Since(begun).Seconds(), failed, answers.Load(), late.Load(), fenced.Load(), expired.Load(), reused.Load(), adopted.Load())
	if seeds.Count >= 40 && (late.Load() == 0 || expired.Load() == 0 || fenced.Load() == expired.Load() || reused.Load() == 0 || adopted.Load() == 0) {
		t.Error("the adversary is tame")
	}
}

// failSeed says what went wrong and how to see it again, with the smallest plan that shows it.
func failSeed(t *testing.T, seeds simtest.Seeds, run fenceRun, rep fenceReport) {
	t.Helper()
	t.Errorf("%v\n%s", rep.err, seeds.Replay(run.seed))
	small := sim.Shrink(rep.plan, func(p *sim.Plan) bool { return fenceRun{run.seed, p, run.wrong}.do().err != nil })
	t.Errorf("the smallest plan that fails, for %s: %v", simtest.PlanVariable, small)
}

// TestSeedsCatchMistakes: each fault that is put in on purpose is found.
func TestSeedsCatchMistakes(t *testing.T) {
	const within = 600
	for _, wrong := range []mistake{hastyFence, lateLease, noSecondLook, forgetful, early, hoarder, unmirrored} {
		t.Run(string(wrong), func(t *testing.T) {
			for seed := range uint64(within) {
				if rep := (fenceRun{seed: seed, wrong: wrong}).do(); rep.err != nil {
					t.Logf("caught by seed %d: %v", seed, rep.err)
					return
				}
			}
			t.Errorf("not caught by %d seeds", within)
		})
	}
}

// TestSeedsReplay: a run is a function of its seed.
func TestSeedsReplay(t *testing.T) {
	for seed := range uint64(10) {
		first, second := fenceRun{seed: seed}.do(), fenceRun{seed: seed}.do()
		if first.hash != second.hash || first.answers != second.answers {
			t.Errorf("seed %d: two runs differ", seed)
		}
	}
}
