package core

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// Ids that are given again, under the adversary: see namesakesworld_test.go.

// namesakesRun is one run.
type namesakesRun struct {
	seed  uint64
	wrong idMistake
}

// namesakesReport is what became of it.
type namesakesReport struct {
	err                                error
	hash                               uint64
	born, again, late, missing, refuse int
}

func (r namesakesRun) do() namesakesReport {
	world := simenv.New(simenv.Options{Seed: r.seed, Preempt: 4 + int(r.seed%8), MaxEvents: 5_000_000})
	random := rand.New(rand.NewPCG(r.seed, 80))
	plan := sim.NewPlan(world.Faults(), sim.Menu{})
	w := &idWorld{
		Stage:  &simtest.Stage{World: world, Random: random, Drift: simDrift},
		fabric: sim.New(world, sim.Options{Plan: plan, Flaws: sim.Flaws{Control: r.wrong == idUnmirrored}}), wrong: r.wrong,
		latest: map[uint16]uint32{}, living: map[uint32]bool{}, doomed: map[uint32]bool{}, suspects: map[uint32]suspicion{},
	}
	err := world.Run(func(p *simenv.Process) {
		w.main = p
		for n := range 2 + random.IntN(2) {
			s := &idServer{w: w, n: n, address: fmt.Sprint("memory-", n), memory: idMemory()}
			w.servers = append(w.servers, s)
			s.serve()
		}
		for n := range 2 + random.IntN(2) {
			w.client(n)
		}
		w.trouble()
		p.Sleep(simLease * 30)
		w.over = true
		p.Sleep(simLease)
	})
	rep := namesakesReport{errors.Join(w.Problem, err), world.Hash(), w.lives, w.again, w.late, w.missing, w.refused}
	if w.Problem != nil {
		rep.err = fmt.Errorf("seed %d: %w", r.seed, w.Problem)
	}
	return rep
}

// trouble ends, stops and starts processes, makes calls that come late, and lets servers forget.
func (w *idWorld) trouble() {
	w.main.Go("trouble", func() {
		for !w.over {
			w.main.Sleep(w.UpTo(2 * simLease))
			s := w.servers[w.Random.IntN(len(w.servers))]
			switch {
			case w.over:
			case w.OneIn(2):
				s.die()
			default:
				p := s.process
				p.Freeze()
				w.After(w.UpTo(simLease), nil, p.Thaw)
			}
		}
	})
	late := w.NewProcess("network")
	late.Go("late calls", func() {
		for !w.over {
			late.Sleep(w.UpTo(simLease / 8))
			w.lateCall(late)
		}
	})
	forgetter := w.NewDrifting("forgetter")
	forgetter.Go("forget", func() {
		for !w.over {
			forgetter.Sleep(w.UpTo(simLease / 2))
			w.forget(forgetter)
		}
	})
	w.main.Go("judge", func() {
		for !w.over {
			w.main.Sleep(w.UpTo(time.Millisecond))
			w.look()
		}
	})
}

// forget is what a client of the index does when it opens it (pool.Forgetter).
func (w *idWorld) forget(p *simenv.Process) {
	servers := append(w.servers[1:len(w.servers):len(w.servers)], w.servers[0])
	var clients []uint32
	if w.call(p, w.servers[0], func(c *Core) (err error) { _, clients, err = c.Forget(simIndex, nil); return err }) != nil {
		return
	}
	if w.wrong == homeFirst {
		servers[0], servers[len(servers)-1] = servers[len(servers)-1], servers[0]
	}
	for _, s := range servers {
		if len(clients) == 0 {
			return
		}
		var gone []uint32
		err := w.call(p, s, func(c *Core) (err error) { gone, _, err = c.Forget(simIndex, clients); return err })
		switch {
		case err == nil:
			clients = gone
		case w.wrong == downForgets && s.n > 0:
		default:
			return
		}
	}
}

// lateCall makes a call of a client that has ended, or about one, as if it had been delayed since
// the client was there.
func (w *idWorld) lateCall(p *simenv.Process) {
	if len(w.dead) == 0 {
		return
	}
	number := w.dead[w.Random.IntN(len(w.dead))]
	said := number
	s := w.servers[w.Random.IntN(len(w.servers))]
	chunk := uint32(1 + w.Random.IntN(simChunks))
	kind := w.Random.IntN(6)
	w.late++
	_ = w.call(p, s, func(c *Core) (err error) {
		if w.wrong == noGenerations {
			c.Accounts.Read(func(l *ledger.Ledger) {
				if now, err := l.NumberOf(simIndex, uint16(number)); err == nil {
					said = now
				}
			})
		}
		what := "Connect"
		switch kind {
		case 0:
			_, _, _, err = c.Connect(simIndex, said, c.Provider("sim"), Caller{})
		case 1:
			what = "Renew"
			_, err = c.Renew(simIndex, said, pool.Epochs{})
		case 2:
			what = "AllocateChunk"
			_, err = allocate(c, said)
		case 3:
			what = "FreeChunk"
			err = free(c, said, chunk)
		case 4:
			what = "ReleaseRange"
			err = c.Release(simIndex, said, nil, nil, 1)
		default:
			w.doomed[number] = true
			_, err = c.Fence(simIndex, []uint32{said}, true, simLease/4)
			return err
		}
		if err == nil && w.latest[uint16(number)] != number {
			w.Report("a late %s of client %d is done by server %d, though client %d has its id", what, number, s.n, w.latest[uint16(number)])
		}
		if errors.Is(err, ledger.ErrFenced) {
			w.refused++
		}
		return err
	})
}

// TestNamesakes: an id is given to another client only when nothing is left of the one that had it,
// on any memory server, and what comes late of that one does nothing to the other.
func TestNamesakes(t *testing.T) {
	seeds := simtest.Read(t, "namesakes", "memserver", 150)
	var born, again, late, refused, missing atomic.Int64
	done, failed := seeds.Each(func(seed uint64) bool {
		rep := namesakesRun{seed: seed}.do()
		if rep.err != nil {
			t.Errorf("%v\n%s", rep.err, seeds.Replay(seed))
		}
		born.Add(int64(rep.born))
		again.Add(int64(rep.again))
		late.Add(int64(rep.late))
		refused.Add(int64(rep.refuse))
		missing.Add(int64(rep.missing))
		return rep.err == nil
	})
	t.Logf("%d seeds, %d failed: %d clients, %d of them with an id that was given before; %d late calls, %d refused; %d times no id was free",
		done, failed, born.Load(), again.Load(), late.Load(), refused.Load(), missing.Load())
	if seeds.Count >= 20 && (again.Load() < 5*int64(done) || refused.Load() == 0 || missing.Load() == 0) {
		t.Error("the adversary is tame")
	}
}

// TestNamesakesCatchMistakes: each fault that is put in on purpose is found.
func TestNamesakesCatchMistakes(t *testing.T) {
	const within = 100
	for _, wrong := range []idMistake{noGenerations, homeFirst, downForgets, idUnmirrored} {
		t.Run(string(wrong), func(t *testing.T) {
			for seed := range uint64(within) {
				if rep := (namesakesRun{seed, wrong}).do(); rep.err != nil {
					t.Logf("caught by seed %d: %v", seed, rep.err)
					return
				}
			}
			t.Errorf("not caught by %d seeds", within)
		})
	}
}
