package poolsim_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// session is a session of a client, from its begin to its end.
func (cw *cellWorld) session(cl *pool.Pool, cell, rounds int) error {
	k, err := cw.open(cl, cell)
	if err != nil {
		return err
	}
	k.ends = true
	k.s.SetLimit(4 * lease)
	return errors.Join(k.works(rounds), k.s.Close())
}

// presenceRun is one run. In every third one no READ brings all presence words of a server.
func presenceRun(t *testing.T, seed uint64, faults presenceFaults) (changed int, err error) {
	t.Helper()
	const rounds = 12
	w := simenv.New(simenv.Options{Seed: seed, MaxEvents: 4_000_000, Preempt: 6})
	plan := sim.NewPlan(w.Faults(), sim.Menu{
		Kinds: sim.OrFailOvers(seed, faults.flaws, deadly...), Processes: []string{"client-1", "client-2", "client-3"}, Parts: 1200, Most: 4, Longest: 3 * lease,
	})
	cw := &cellWorld{w: w, faults: faults}
	cw.c, err = poolsim.New(w, poolsim.Options{
		Servers: 1 + int(seed%2), Locks: 4, Lease: lease, RenewEvery: wordRenewal(seed), Intents: []int{20, 30, 1600}[seed%3], Chunks: 16, ChunkBytes: 64 << 10, Fabric: sim.Options{Plan: plan, Flaws: faults.flaws},
	})
	must(t, err)
	err = w.Run(func(p *simenv.Process) {
		cl, err := cw.c.Open(p)
		must(t, err)
		cw.build(t, cl, 1+int(seed%3))
		must(t, cl.Close()) // a fault may restart its memory server
		g := env.NewWaitGroup(p)
		for n := range cellClients {
			proc, done := w.NewProcess(fmt.Sprintf("client-%d", n+1)), p.NewEvent()
			proc.Go("main", func() {
				defer done.Set()
				for range 3 { // who was given up begins anew, among the slots that it had
					cl, err := cw.c.Open(proc)
					if err != nil {
						return // it is met by a fault
					}
					inner := env.NewWaitGroup(proc)
					for i := range cellSessions {
						inner.Go(fmt.Sprint("session ", i), func() {
							err := cw.session(cl, n*cellSessions+i, rounds)
							if err != nil && cl.Alive() == nil && len(plan.Faults) == 0 {
								cw.fail("client %d: %w", n, err)
							}
						})
					}
					inner.Wait(env.Forever)
					alive := cl.Alive() == nil
					if err := cl.Close(); err != nil || alive {
						return // a WRITE of its own may yet take effect
					}
				}
			})
			g.Go("wait", func() { done.Wait(env.Forever) })
		}
		g.Wait(env.Forever)
		p.Sleep(3 * lease) // whatever a dead client has under way; then it is fenced
		cl, err = cw.c.Open(p)
		must(t, err)
		k, err := cw.open(cl, 0)
		must(t, err)
		for i := range cw.nodes {
			// Nobody who died in a node keeps it from being moved.
			k.s.Begin()
			must(t, k.move(i))
			must(t, k.read(i))
			k.s.End()
		}
		must(t, errors.Join(k.s.Close(), cl.Alive(), cl.Close()))
	})
	if err != nil {
		err = fmt.Errorf("seed %d: %w\nplan %v", seed, err, plan)
	}
	return cw.changed, err
}

// TestPresence: no count of a cell is lost, and none comes back, while nodes are moved and
// rewritten, and clients die. It is what make sim DESIGN=presence runs.
func TestPresence(t *testing.T) {
	seeds := simtest.Read(t, "presence", "pkg/pool/poolsim", 100)
	var changed atomic.Uint64
	done, failed := seeds.Each(func(seed uint64) (passed bool) {
		n, err := presenceRun(t, seed, presenceFaults{})
		changed.Add(uint64(n))
		if err != nil {
			t.Errorf("%v\n%s", err, seeds.Replay(seed))
		}
		return err == nil
	})
	t.Logf("presence: %d seeds, %d failed; %d moves and rewrites", done, failed, changed.Load())
	if changed.Load() < 10*done {
		t.Errorf("%d moves and rewrites, %d seeds are to have more", changed.Load(), done)
	}
}

// TestPresenceFaults: each of these is found.
func TestPresenceFaults(t *testing.T) {
	for name, x := range map[string]struct {
		faults presenceFaults
		from   uint64 // the first seed that is tried
	}{
		"shut after the wait":                        {presenceFaults{waitFirst: true}, 0},
		"read before the word":                       {presenceFaults{readFirst: true}, 0},
		"write behind the word":                      {presenceFaults{leaveFirst: true}, 0},
		"nobody is waited for":                       {presenceFaults{noWait: true}, 0},
		"a rewrite opens the node":                   {presenceFaults{opensWithin: true}, 0},
		"a dead holder's wait is taken for over":     {presenceFaults{trusts: true}, 0},
		"answers to WRITEs do not wait for the copy": {presenceFaults{flaws: sim.Flaws{Writes: true}}, 25},
		"answers to READs do not wait for the copy":  {presenceFaults{flaws: sim.Flaws{Reads: true}}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := x.from; seed < x.from+150; seed++ {
				if _, err := presenceRun(t, seed, x.faults); err != nil {
					t.Logf("found at seed %d: %.200v", seed, err)
					if x.faults.flaws != (sim.Flaws{}) {
						_, err := presenceRun(t, seed, presenceFaults{flaws: sim.Flaws{Sound: true}})
						must(t, err)
					}
					return
				}
			}
			t.Error("not found")
		})
	}
}

// TestSlotOfOneWhoDied: a client that gets the slot of one that died where it was clears its word,
// so nobody waits for it.
func TestSlotOfOneWhoDied(t *testing.T) {
	w := simenv.New(simenv.Options{Seed: 1})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 4, Lease: lease, Intents: 1})
	must(t, err)
	must(t, w.Run(func(p *simenv.Process) {
		cl, err := c.Open(p)
		must(t, err)
		cw := &cellWorld{w: w, c: c}
		cw.build(t, cl, 1)
		node, there := cw.nodes[0], p.NewEvent()
		proc := w.NewProcess("victim")
		proc.Go("main", func() {
			own, err := c.Open(proc)
			must(t, err)
			s, err := own.NewSession(64)
			must(t, err)
			s.Begin()
			must(t, s.Enter(node))
			must(t, s.Post())
			there.Set()
			proc.Sleep(time.Hour)
		})
		there.Wait(env.Forever)
		proc.Kill()
		p.Sleep(3 * lease) // it is fenced
		other, err := cl.Allocate(wordNode, pool.Nil)
		must(t, err)
		binary.LittleEndian.PutUint64(c.Memory(1, verbs.RegionData)[other.Offset():], 1)
		k, err := cw.open(cl, 0)
		must(t, err)
		k.s.SetLimit(lease)
		k.s.Begin()
		_, err = k.s.Acquire(pool.Word{At: other + wordImage, Node: other}) // claims the slot
		must(t, err)
		must(t, k.s.PostRelease(0, 0))
		must(t, k.move(0))
		k.s.End()
		must(t, errors.Join(k.s.Close(), cl.Close()))
	}))
}

// TestSlotOfOneWhoIsThereForgets: the slot of a session that enters one node after another forgets
// the word that it names, although nobody else finds it unused. So memory comes back.
func TestSlotOfOneWhoIsThereForgets(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		cl, err := c.Open(p)
		must(t, err)
		s, err := cl.NewSession(64)
		must(t, err)
		node, err := cl.Allocate(256, pool.Nil)
		must(t, err)
		entered, err := cl.Allocate(256, node) // on the same server
		must(t, err)
		s.Begin()
		_, err = s.Acquire(pool.Word{At: node + 248, Node: node})
		must(t, err)
		must(t, s.PostRelease(0, 0))
		s.End()
		cl.Retire(node, 256)
		for i := 0; cl.Reclaimed() == 0; i++ {
			if i == 200 {
				t.Fatal("the node is never free")
			}
			s.Begin()
			must(t, s.Enter(entered))
			must(t, s.Post())
			p.Sleep(lease / 20)
			must(t, s.PostLeave())
			s.End()
		}
		must(t, errors.Join(s.Close(), cl.Close()))
	})
}

// TestPresenceOnServerThatJoins: sessions that were opened before a memory server joined enter
// nodes there, and are waited for.
func TestPresenceOnServerThatJoins(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		cl, err := c.Open(p)
		must(t, err)
		enters, err := cl.NewSession(64)
		must(t, err)
		holds, err := cl.NewSession(64)
		must(t, err)
		id, err := c.Start()
		must(t, err)
		for _, state := range []pool.JoinState{pool.Joining, pool.Member} {
			must(t, c.Note(p, id, state, lease))
			for n := 1; n > 0; p.Sleep(lease / 10) {
				n, err = c.Behind(p, lease)
				must(t, err)
			}
		}
		must(t, c.FenceAtNew(p, id, lease))
		must(t, c.Grant(p, id, lease))
		var node pool.Addr
		for range 1000 {
			if node, err = cl.Allocate(wordNode, pool.Nil); err != nil || node.Server() == id {
				break
			}
		}
		must(t, err)
		if node.Server() != id {
			t.Fatal("no node lies on the server that joined")
		}
		enters.Begin()
		must(t, errors.Join(enters.Enter(node), enters.Post()))
		holds.SetLimit(lease / 10)
		for _, wants := range []error{pool.ErrTimeout, nil} {
			holds.Begin()
			_, err = holds.Acquire(pool.Word{At: node + wordImage, Node: node})
			must(t, err)
			if err := holds.AwaitAbsent(node); !errors.Is(err, wants) {
				t.Errorf("the wait ends with %v, want %v", err, wants)
			}
			must(t, holds.PostRelease(0, 0))
			holds.End()
			if wants != nil {
				must(t, enters.PostLeave())
				enters.End()
			}
		}
	})
}
