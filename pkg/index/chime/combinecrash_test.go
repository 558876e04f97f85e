package chime_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/combine/combinetest"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestCrashInCombinedUpdates kills a client after every part of its requests while its sessions
// wait for one leaf, so that one makes the changes of the others: updates of one key and of
// several, and an insertion. No key that was there is lost, and each has one of its values: where
// the WRITE of a slot can be cut short, also a combined update is a Rewrite.
func TestCrashInCombinedUpdates(t *testing.T) {
	seeds, step := []uint64{3, 0, 1, 2}, 1
	for _, seed := range seeds {
		runs, combined := 0, uint64(0)
		for part := 1; ; part += step {
			n, ended := crashInCombined(t, seed, part)
			if ended {
				combined = n
				break
			}
			runs++
		}
		if t.Logf("seed %d: %d crashes; %d changes of others in the run without one", seed, runs, combined); combined == 0 {
			t.Errorf("seed %d: no session has carried out the change of another one", seed)
		}
	}
}

// crashInCombined is one run. combined is how many changes of others sessions carried out, if the
// client lived.
func crashInCombined(t *testing.T, seed uint64, part int) (combined uint64, ended bool) {
	const waiters, rounds = 4, 2
	h := newHopWorld(t, seed, sim.Fault{Kind: sim.Crash, Process: "victim", Part: part})
	err := h.w.Run(func(p *simenv.Process) {
		if err := h.fill(p); err != nil {
			h.check(err, "fill")
			return
		}
		victim, over := h.w.NewProcess("victim"), p.NewEvent()
		victim.Go("main", func() {
			defer over.Set()
			x, holder, err := h.open(victim)
			s := make([]index.Session, waiters)
			for i := range s {
				if err == nil {
					s[i], err = x.Session()
				}
			}
			for r := range rounds {
				if err != nil {
					break
				}
				others := make([]func(), waiters)
				for i := range others {
					others[i] = func() {
						// in the first round all of one key; each value is another one than before
						n := 1 + i/2*r
						change := func() error { return s[i].Update(h.key(n), hopValues(n)[(r+1)%2]) }
						if i == waiters-1 {
							change = func() error { return s[i].Insert(h.key(stable+r), hopKey(stable+r)) }
						}
						h.check(change(), "waiter ", i)
					}
				}
				combinetest.WhileHeld(t, victim, holder, h.key(0), others...)
			}
			h.check(err, "the victim, alive")
			if err == nil {
				combined = x.Stats().Combined
			}
		})
		over.Wait(env.Forever)
		ended = !victim.Dead()
		p.Sleep(2 * hopLease)
		h.check(h.judgeCombined(p, rounds), "after the crash")
	})
	if err != nil {
		t.Fatalf("seed %d, dead after part %d: %v", seed, part, err)
	}
	return combined, ended
}

// judgeCombined: all keys that stay are there, before the leaf is repaired and afterwards, and what
// was inserted is there or not.
func (h *hopWorld) judgeCombined(p *simenv.Process, inserted int) error {
	x, s, err := h.open(p)
	if err != nil {
		return err
	}
	for n := range stable {
		v, err := s.Lookup(h.key(n), nil)
		if w := hopValues(n); err != nil || string(v) != string(w[0]) && string(v) != string(w[1]) {
			return fmt.Errorf("key %d, which is there all the time: %x, %w", n, v, err)
		}
	}
	there := stable
	for n := range stable + inserted {
		err := s.Update(h.key(n), hopKey(n))
		if n >= stable && err == nil {
			there++
		} else if n < stable && err != nil || err != nil && !errors.Is(err, index.ErrNotFound) {
			return fmt.Errorf("update key %d after the repair: %w", n, err)
		}
	}
	found, err := x.(index.Checker).Check()
	if err == nil && int(found.Pairs) != there {
		err = fmt.Errorf("%d pairs, want %d", found.Pairs, there)
	}
	return err
}
