package indexsim_test

import (
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// bulkPairs need leaves and inner nodes enough for a tree of three levels.
const bulkPairs = 60

// bulkCrash is one run of TestCrashInBulkLoad: the loader dies after some number of parts of its
// requests. The next client finds an index that is empty or complete, and whole; so does one that
// knew it when it was empty.
func bulkCrash(t *testing.T, d index.Design, seed uint64, part int) (ended, complete bool) {
	t.Helper()
	c := crash{design: d, seed: seed}
	if seed%2 == 0 {
		c.inline = 12
	}
	w := simenv.New(simenv.Options{Seed: seed, MaxEvents: 5_000_000})
	plan := &sim.Plan{
		Capabilities: verbs.Capabilities{MaskedAtomics: seed%2 == 0, WholeWrite: 8}, Tear: 1 + int(seed)%4, Reorder: true, Delay: 100, Gap: 100,
		Faults: []sim.Fault{{Kind: sim.Crash, Process: "victim", Part: part}},
	}
	cl, err := poolsim.New(w, poolsim.Options{Servers: 1 + int(seed)%2, Chunks: crashChunks, ChunkBytes: crashChunk, Locks: 16, Lease: crashLease, Fabric: sim.Options{Plan: plan}})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Run(func(p *simenv.Process) {
		fail := func(err error) bool {
			if err != nil {
				w.Fail(err)
			}
			return err != nil
		}
		early, err := c.session(cl, p)
		if fail(err) {
			return
		}
		victim, over := w.NewProcess("victim"), p.NewEvent()
		victim.Go("main", func() {
			defer over.Set()
			pl, err := cl.Open(victim)
			if fail(err) {
				return
			}
			x, err := d.Open(pl, c.options())
			if fail(err) {
				return
			}
			fail(x.BulkLoad(func(yield func(key, value []byte) bool) error {
				for n := range bulkPairs {
					yield([]byte(crashKey(n)), fmt.Appendf(nil, "value of %s, which is not short", crashKey(n)))
				}
				return nil
			}, 1+int(seed)%3))
		})
		over.Wait(env.Forever)
		ended = !victim.Dead()
		p.Sleep(2 * crashLease)
		count := func(s index.Session) int {
			n := 0
			fail(s.Scan(nil, 1000, seed%2 == 1, func(_, _ []byte) bool { n++; return true }))
			return n
		}
		pl, err := cl.Open(p)
		if fail(err) {
			return
		}
		x, err := d.Open(pl, c.options())
		if fail(err) {
			return
		}
		late, err := x.Session()
		if fail(err) {
			return
		}
		sessions := []index.Session{early, late}
		if seed%2 == 1 {
			sessions = []index.Session{late, early}
		}
		n := count(sessions[0])
		if m := count(sessions[1]); m != n || n != 0 && n != bulkPairs || ended && n == 0 {
			w.Fail(fmt.Errorf("%d pairs, then %d, want 0 or %d", n, m, bulkPairs))
		}
		complete = n > 0
		for n := range bulkPairs {
			if fail(sessions[n%2].Upsert([]byte(crashKey(n)), []byte("after"))) {
				return
			}
		}
		found, err := x.(index.Checker).Check()
		if !fail(err) && found.Pairs != bulkPairs {
			w.Fail(fmt.Errorf("%d pairs, want %d", found.Pairs, bulkPairs))
		}
	})
	if err != nil {
		t.Fatalf("seed %d, dead after part %d: %v", seed, part, err)
	}
	return ended, complete
}

// TestCrashInBulkLoad kills a loader after parts of its requests: every second one,
// even ones or odd ones of a seed; with DMINDEX_SIM_STEP=1 every one.
func TestCrashInBulkLoad(t *testing.T) {
	eachDesign(t, func(t *testing.T, d index.Design, less bool) {
		seeds := uint64(6)
		if less {
			seeds = 2 // a load of SMART freezes 256 slots, one by one
		}
		crashInBulkLoad(t, d, seeds)
	})
}

func crashInBulkLoad(t *testing.T, d index.Design, seeds uint64) {
	collectSeldom(t)
	empty, complete, step := 0, 0, simtest.Step(t, 2)
	for seed := range seeds {
		for part := firstCrash(seed, step); ; part += step {
			ended, all := bulkCrash(t, d, seed, part)
			if ended {
				break
			}
			if all {
				complete++
			} else {
				empty++
			}
		}
	}
	if t.Logf("%d crashes left an empty index, %d a complete one", empty, complete); empty == 0 || complete == 0 {
		t.Error("both must have happened")
	}
}
