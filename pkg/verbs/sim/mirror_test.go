package sim_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// These toys have a mirrored server, and faults of its that are put in on purpose. Among them is
// each answer that does not wait for what it depends on.

var failOvers = sim.Menu{Kinds: []sim.Kind{sim.FailOver}, Processes: clients, Parts: 60, Most: 4, Longest: time.Millisecond}

// mirrorToys are those toys.
var mirrorToys = []toy{
	{"AnswersToWritesDoNotWait", failOvers, numbers(byWrite, byRead), sim.Flaws{Writes: true}},
	{"AnswersToReadsDoNotWait", failOvers, numbers(byWrite, byRead), sim.Flaws{Reads: true}},
	{"AnswersToAtomicsDoNotWait", failOvers, numbers(byAdd, byRead), sim.Flaws{Swaps: true}},
	{"AnswersToFailedSwapsDoNotWait", failOvers, numbers(byAdd, bySwap), sim.Flaws{Found: true}},
	{"AnswersToCallsDoNotWait", failOvers, numbers(byCall, ofCall), sim.Flaws{Control: true}},
	{"WritesAreCut", failOvers, wholeWrites, sim.Flaws{Cut: true}},
}

// again connects anew, also where the client has not heard of a fail-over.
func (c *player) again() {
	for {
		var err error
		if c.conn, err = c.device.Connect(verbs.Target{Address: c.w.address, Token: verbs.Token{c.number}}, time.Minute); err == nil {
			if c.qp, err = c.conn.NewQP(c.arena); err == nil || c.Dead() {
				return
			}
		}
	}
}

// numbers makes a toy with a number that grows: no answer says less than one that was given before
// it was asked for.
func numbers(change func(c *player, v uint64) error, look func(c *player) (uint64, error)) func(*toyWorld, bool) error {
	return func(w *toyWorld, _ bool) error {
		least := uint64(0)
		looks := func(c *player) {
			for range 12 {
				before := least
				v, err := look(c)
				if err != nil {
					c.again()
					continue
				}
				if v < before {
					w.report("client %d is told %d after %d was answered", c.number, v, before)
				}
				least = max(least, v)
			}
		}
		w.together(func(c *player) {
			for v := uint64(1); v < 16; v++ {
				if change(c, v) != nil {
					c.again()
					continue
				}
				least = max(least, v)
			}
		}, looks, looks)
		return nil
	}
}

func byWrite(c *player, v uint64) error { return c.post(c.fill(0, 8, v)) }

func byRead(c *player) (uint64, error) {
	err := c.post(c.read(0, 8))
	return c.at(0), err
}

// byAdd makes the number v, which may have failed for some numbers before it.
func byAdd(c *player, v uint64) error {
	now, err := byRead(c)
	if err == nil {
		err = c.post(verbs.Request{Op: verbs.CompareSwap, Local: c.word, Compare: now, Swap: v})
	}
	return err
}

func bySwap(c *player) (uint64, error) {
	err := c.post(verbs.Request{Op: verbs.CompareSwap, Local: c.word, Compare: ^uint64(0), Swap: 0})
	return c.old(), err
}

func byCall(c *player, v uint64) error {
	err := c.post(c.read(0, 8)) // faults come with lists
	if err != nil {
		return err
	}
	return c.w.f.Call(c.Process, c.w.address, time.Minute, func() {
		before := c.w.stored
		c.w.server.Record(func() { c.w.stored = before })
		c.w.stored = v
	})
}

func ofCall(c *player) (v uint64, err error) {
	err = c.w.f.Call(c.Process, c.w.address, time.Minute, func() { v = c.w.stored })
	return v, err
}

// wholeWrites: where a WRITE is whole always, so it is after a fail-over.
func wholeWrites(w *toyWorld, _ bool) error {
	caps := w.plan.Capabilities
	const n = 32 // words
	w.together(func(c *player) {
		for v := uint64(1); v < 16 && c.post(c.fill(0, 8*n, v)) == nil; v++ {
		}
	})
	got := w.words(0, n)
	for i := range got {
		if first := got[i*8/caps.WholeWrite*caps.WholeWrite/8]; caps.WholeAlways && got[i] != first {
			return fmt.Errorf("blocks of %d are whole, and word %d is %d in one of %d", caps.WholeWrite, i, got[i], first)
		}
	}
	return nil
}

// TestMirroredServer: a server records what it is told to, and what its copy lacks is undone; what
// was answered is not.
func TestMirroredServer(t *testing.T) {
	kept, undone := 0, 0
	for seed := range uint64(faultSeeds) {
		plan := &sim.Plan{Tear: 1, Delay: 1000, Gap: 1000, Faults: []sim.Fault{{Kind: sim.FailOver, Process: clients[0], Part: 5}}}
		inWorld(t, seed, plan, func(w *toyWorld) error {
			opened := 0
			w.server.Keep(sim.Mirror{
				Recorded: func(region verbs.RegionID, remote uint64) bool { return remote != 64 },
				Opened:   func() { opened++ },
			})
			acked := uint64(0)
			w.together(func(c *player) {
				for v := uint64(1); ; v++ {
					other := c.fill(64, 8, v)
					if c.post(other, verbs.Request{Op: verbs.Write, Remote: 0, Local: other.Local}) != nil {
						break
					}
					acked = v
				}
			})
			got, other := w.words(0, 1)[0], w.words(64, 1)[0]
			if opened != 1 || acked != 2 || other != 3 || got != 2 && got != 3 {
				return fmt.Errorf("%d was acknowledged, %d is there, and %d of what is not recorded; the copy opened %d times", acked, got, other, opened)
			}
			if got == 3 {
				kept++
			} else {
				undone++
			}
			return nil
		})
	}
	// The fault is behind part 5, which is the one that is not recorded or the other one.
	if undone == 0 {
		t.Errorf("%d unanswered changes were kept, %d undone", kept, undone)
	}
}

// TestLateNews: a client that has not heard of a fail-over has no answers, and changes nothing;
// others do meanwhile.
func TestLateNews(t *testing.T) {
	late := 0
	for seed := range uint64(faultSeeds) {
		plan := &sim.Plan{Tear: 1, Delay: 1000, Gap: 1000, Faults: []sim.Fault{{Kind: sim.FailOver, Process: clients[0], Part: 5, For: time.Second}}}
		inWorld(t, seed, plan, func(w *toyWorld) error {
			w.together(func(c *player) {
				var err error
				for v := uint64(1); err == nil; v++ {
					err = c.post(c.fill(0, 8, v))
				}
				if !errors.Is(err, verbs.ErrDisconnected) {
					w.report("a list on a server that failed over: %v", err)
				}
				if c.Now() > 100*time.Millisecond {
					late++
				}
				if v := w.server.Restarts(); v != 1 {
					w.report("the server died %d times", v)
				}
				c.again()
				c.must(c.post(c.read(0, 8)))
				if c.Now() > 100*time.Millisecond && c.at(0) != 77 {
					w.report("there is %d, and another client wrote 77 meanwhile", c.at(0))
				}
			}, func(c *player) {
				c.conn.Close() // so it knows of the fail-over when it comes back
				c.Sleep(time.Millisecond)
				c.again()
				c.must(c.post(c.fill(0, 8, 77)))
			})
			return nil
		})
	}
	if late == 0 || late == faultSeeds {
		t.Errorf("%d of %d clients heard of it late", late, faultSeeds)
	}
}
