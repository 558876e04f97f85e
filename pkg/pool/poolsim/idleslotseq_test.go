package poolsim_test

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestIdleSlotCountsOn: a client claims a slot again that it gave back, changes the same node by
// way of the same image, and dies when only the first word of the new change is written. The rest
// is that of the earlier change. Together they must not verify: the image is another one by then,
// so the word would be damaged for ever.
func TestIdleSlotCountsOn(t *testing.T) {
	late := 0
	for seed := uint64(1); seed <= 40; seed++ { // the order in which the words of a WRITE arrive
		for part := 1; ; part++ {
			again, died := changedAgain(t, seed, part)
			if again {
				late++
			}
			if !died {
				break
			}
		}
	}
	if late < 400 {
		t.Errorf("the client died %d times while it changed the node again: that would prove little", late)
	}
}

// changedAgain lets a client die after a part of its requests. again reports that it had begun to
// change the node again, died that it died.
func changedAgain(t *testing.T, seed uint64, part int) (again, died bool) {
	w := simenv.New(simenv.Options{Seed: seed})
	plan := &sim.Plan{
		Capabilities: verbs.Capabilities{MaskedAtomics: true, WholeWrite: 8}, Tear: 4, Delay: 100, Gap: 100,
		Faults: []sim.Fault{{Kind: sim.Crash, Process: "holder", Part: part}},
	}
	ww := &wordWorld{w: w}
	var err error
	ww.c, err = poolsim.New(w, poolsim.Options{
		Servers: 1, Locks: 4, Lease: lease, Intents: 4, Chunks: 6, ChunkBytes: 16 << 10, Fabric: sim.Options{Plan: plan}, Meddle: wordFaults{}.meddle,
	})
	must(t, err)
	err = w.Run(func(p *simenv.Process) {
		cl, err := ww.c.Open(p)
		must(t, err)
		ww.build(t, cl, 1)
		holder, counted, idle, over := w.NewProcess("holder"), p.NewEvent(), p.NewEvent(), false
		holder.Go("main", func() {
			cl, err := ww.c.Open(holder)
			must(t, err)
			k, err := ww.open(cl)
			must(t, err)
			must(t, k.count(0, false, 0))
			counted.Set()
			idle.Wait(time.Hour)
			must(t, k.count(0, false, 0))
			over = true
		})
		for !counted.Wait(lease) && !holder.Dead() {
		}
		p.Sleep(3 * lease) // its slot is given back
		if n := ww.c.UsedIntents(1); n != 0 && !holder.Dead() {
			t.Fatalf("%d slots are used by a session that is idle", n)
		}
		again = !holder.Dead()
		idle.Set()
		for !over && !holder.Dead() {
			p.Sleep(lease)
		}
		died = holder.Dead()
		again = again && died
		p.Sleep(3 * lease)
		k, err := ww.open(cl)
		must(t, err)
		if err := k.count(0, false, 0); err != nil {
			t.Errorf("seed %d, dead after part %d: %v", seed, part, err)
		}
	})
	if err != nil {
		t.Fatalf("seed %d, dead after part %d: %v", seed, part, err)
	}
	return again, died
}
