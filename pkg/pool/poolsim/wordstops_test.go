package poolsim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// wordStop is a run in which a client dies in the middle of counting a node, one that repairs dies
// too, and another one stands still while it counts, is fenced, and goes on.
type wordStop struct {
	seed uint64
	// after which part of its requests each of them dies, or stands still; 0 = it does not come
	victim, repairer, stopped int

	died, owed, repairs, stood bool // what happened
}

func (h *wordStop) String() string {
	return fmt.Sprintf("seed %d, victim dead after part %d, repairer after part %d, one that stands still after part %d", h.seed, h.victim, h.repairer, h.stopped)
}

// always reports whether a WRITE that takes effect whole does so whoever dies. If a node fits one,
// nobody ever owes a change.
func (h *wordStop) always() bool { return (h.seed/4+h.seed)%2 == 1 }

func (h *wordStop) whole() int { return []int{8, 4096}[h.seed/2%2] }

// tear is in how many moments a WRITE takes effect.
func (h *wordStop) tear() int { return 1 + int(h.seed)%4 }

// run lets clients come one after another and judges what they leave.
func (h *wordStop) run(t *testing.T) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: h.seed, MaxEvents: 1_000_000, Preempt: 6})
	plan := &sim.Plan{
		Capabilities: verbs.Capabilities{
			MaskedAtomics: h.seed%2 == 0, WholeWrite: h.whole(), WholeAlways: h.always(),
		},
		Tear: h.tear(), Reorder: true, Delay: 100, Gap: 100, HoldFrozen: true, SplitAtomics: true,
		Faults: []sim.Fault{
			{Kind: sim.Crash, Process: "victim", Part: h.victim},
			{Kind: sim.Crash, Process: "repairer", Part: h.repairer},
			{Kind: sim.Freeze, Process: "stopped", Part: h.stopped, For: standsStill},
		},
	}
	ww := &wordWorld{w: w}
	var err error
	ww.c, err = poolsim.New(w, poolsim.Options{Servers: 1, Locks: 4, Intents: 6, Chunks: 6, ChunkBytes: 16 << 10, Fabric: sim.Options{Plan: plan}, Meddle: wordFaults{}.meddle})
	must(t, err)
	err = w.Run(func(p *simenv.Process) {
		cl, err := ww.c.Open(p)
		must(t, err)
		ww.build(t, cl, 1+int(h.seed%3))
		i := len(ww.words) - 1
		if h.victim > 0 {
			if h.died = h.counts(ww, p, "victim", i, 3).Dead(); !h.died {
				return
			}
			h.owed = ww.c.UsedIntents(1) > 0
		}
		if h.repairer > 0 {
			if h.repairs = h.counts(ww, p, "repairer", i, 1).Dead(); !h.repairs {
				return
			}
		}
		var rest func()
		if h.stopped > 0 {
			if rest = h.stands(ww, p, i); rest == nil {
				return
			}
		}
		k, err := ww.open(cl)
		must(t, err)
		for range 3 {
			must(t, k.count(i, false, 0))
		}
		now := ww.counted[i]
		if rest != nil {
			rest()
		}
		if ww.counted[i] != now {
			w.Fail(fmt.Errorf("a fenced client had its count confirmed"))
		}
		must(t, k.count(i, true, 0))
		must(t, k.s.Close())
		ww.end(t, cl)
	})
	if err != nil {
		t.Fatalf("%v: %v", h, err)
	}
}

// counts lets a client count a node and then fences it. Another session of the client has the first
// count than the later ones: a slot may name the word that is not the holder's.
func (h *wordStop) counts(ww *wordWorld, p *simenv.Process, name string, i, times int) *simenv.Process {
	proc, over := ww.w.NewProcess(name), p.NewEvent()
	var id uint32
	proc.Go("main", func() {
		defer over.Set()
		cl, err := ww.c.Open(proc)
		if err != nil {
			return
		}
		id = cl.Client()
		var k *counter
		for n := range times {
			if n < 2 {
				k, err = ww.open(cl)
			}
			if err == nil {
				err = k.count(i, false, 0)
			}
			if err != nil {
				break
			}
		}
	})
	over.Wait(env.Forever)
	if proc.Dead() {
		p.Sleep(time.Millisecond) // what it has under way
		if err := ww.c.Control(p).Fence(1, []uint32{id}, time.Second); err != nil {
			ww.w.Fail(err)
		}
	}
	return proc
}

// stands lets a client stand still in the middle of counting and fences it. It returns what waits
// until the client has gone on.
func (h *wordStop) stands(ww *wordWorld, p *simenv.Process, i int) (rest func()) {
	proc, over := ww.w.NewProcess("stopped"), p.NewEvent()
	var id uint32
	proc.Go("main", func() {
		defer over.Set()
		cl, err := ww.c.Open(proc)
		if err != nil {
			return
		}
		id = cl.Client()
		k, err := ww.open(cl)
		for range 2 {
			if err == nil {
				err = k.count(i, false, 0)
			}
		}
	})
	if over.Wait(standsStill/3) || id == 0 {
		return nil
	}
	h.stood = true
	if err := ww.c.Control(p).Fence(1, []uint32{id}, time.Second); err != nil {
		ww.w.Fail(err)
	}
	return func() { over.Wait(env.Forever) }
}

// TestWordHolderDies kills a client after every part of its requests while it counts a node, then
// one that repairs what the first one left after every part of its own.
func TestWordHolderDies(t *testing.T) {
	seeds, step, runs, nested := uint64(12), 7, 0, 0
	for seed := range seeds {
		for victim := 1; ; victim++ {
			h := wordStop{seed: seed, victim: victim}
			h.run(t)
			if !h.died {
				break
			}
			runs++
			for repairer := 1 + victim%step; ; repairer += step {
				h := wordStop{seed: seed, victim: victim, repairer: repairer}
				h.run(t)
				if !h.repairs {
					break
				}
				nested++
			}
		}
	}
	t.Logf("%d deaths, and %d of repairers", runs, nested)
}

// owingAfter are parts after which a client that dies owes a change.
func owingAfter(t *testing.T, seed uint64) (parts []int) {
	for part := 1; len(parts) < 3; part++ {
		h := wordStop{seed: seed, victim: part}
		if h.run(t); !h.died {
			break
		}
		if h.owed {
			parts = append(parts, part)
		}
	}
	if h := (wordStop{seed: seed}); len(parts) == 0 != (h.always() && h.whole() > wordImage) {
		t.Errorf("seed %d: a dead client owes a change after parts %v", seed, parts)
	}
	return parts
}

// TestWordHolderStandsStill stops a client after every part of its requests, while it counts a node
// or repairs one, and fences it meanwhile. Then it goes on: nothing of it takes effect.
func TestWordHolderStandsStill(t *testing.T) {
	seeds, step, runs := uint64(8), 2, 0
	for seed := range seeds {
		for _, victim := range append([]int{0}, owingAfter(t, seed)...) {
			for stopped := 1; ; stopped += step {
				h := wordStop{seed: seed, victim: victim, stopped: stopped}
				if h.run(t); !h.stood {
					break
				}
				runs++
			}
		}
	}
	t.Logf("%d runs", runs)
}

// TestNextChangeCutShort kills a client after every part of its requests while it counts a node
// under a word of a strip again, whose slot has the change before: name and change are one WRITE,
// of which any words may be there.
func TestNextChangeCutShort(t *testing.T) {
	most, runs := 200, 0
	for seed, n := uint64(0), 0; n < most; seed++ {
		h := wordStop{seed: seed}
		if inStrip := seed%3 == 2; !inStrip || h.always() || h.whole() > 8 || h.tear() == 1 {
			continue
		}
		n++
		for h.victim = 1; ; h.victim++ {
			if h.run(t); !h.died {
				break
			}
			runs++
		}
	}
	t.Logf("%d deaths", runs)
}
