package poolsim_test

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestOwedIsRepairedByWhoComes: what a dead client owes under a word that nobody wants any more is
// repaired by the next client that takes any word, so that its slot is not lost.
func TestOwedIsRepairedByWhoComes(t *testing.T) {
	owed := 0
	for seed := range uint64(4) {
		for part := 1; ; part++ {
			found, died := owedAfter(t, seed, part)
			if !died {
				break
			}
			if found {
				owed++
			}
		}
	}
	if t.Logf("%d deaths with a change that was owed", owed); owed == 0 {
		t.Error("no dead client ever owed a change")
	}
}

// owedAfter lets a client die after a part of its requests while it counts a node.
func owedAfter(t *testing.T, seed uint64, part int) (found, died bool) {
	w := simenv.New(simenv.Options{Seed: seed, MaxEvents: 1_000_000})
	plan := &sim.Plan{
		Capabilities: verbs.Capabilities{MaskedAtomics: true, WholeWrite: 8}, Tear: 4, Delay: 100, Gap: 100,
		Faults: []sim.Fault{{Kind: sim.Crash, Process: "victim", Part: part}},
	}
	ww := &wordWorld{w: w}
	var err error
	ww.c, err = poolsim.New(w, poolsim.Options{Servers: 1, Locks: 4, Intents: 6, Chunks: 6, ChunkBytes: 16 << 10, Fabric: sim.Options{Plan: plan}, Meddle: wordFaults{}.meddle})
	must(t, err)
	err = w.Run(func(p *simenv.Process) {
		cl, err := ww.c.Open(p)
		must(t, err)
		ww.build(t, cl, 2)
		victim, over := w.NewProcess("victim"), p.NewEvent()
		var id uint32
		victim.Go("main", func() {
			defer over.Set()
			cl, err := ww.c.Open(victim)
			must(t, err)
			id = cl.Client()
			k, err := ww.open(cl)
			must(t, err)
			must(t, k.count(0, false, 0))
		})
		over.Wait(env.Forever)
		if died = victim.Dead(); !died {
			return
		}
		p.Sleep(time.Millisecond)
		must(t, ww.c.Control(p).Fence(1, []uint32{id}, time.Second))
		if found = ww.c.UsedIntents(1) > 0; !found {
			return
		}
		k, err := ww.open(cl)
		must(t, err)
		must(t, k.count(1, false, 0))
		p.Sleep(10 * time.Millisecond)
		// a session's, and that of what clears slots
		if used := ww.c.UsedIntents(1); used != 2 || cl.Repaired() != 1 {
			t.Errorf("seed %d, dead after part %d: %d intent slots are in use, and %d changes were repaired", seed, part, used, cl.Repaired())
		}
		node := ww.words[0].Node
		ww.whole("when it is repaired", ww.words[0], ww.c.Memory(1, verbs.RegionData)[node.Offset():][:wordImage])
		must(t, k.s.Close())
	})
	if err != nil {
		t.Fatalf("seed %d, dead after part %d: %v", seed, part, err)
	}
	return found, died
}
