package poolsim_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestStripsGoBackFree: a chunk with lock words goes back to its memory server only when nothing is
// owed under them. So what a client owed that died is not written over what lies there later.
func TestStripsGoBackFree(t *testing.T) {
	owed := 0
	for seed := range uint64(8) {
		for died, part := true, 1; died; part++ {
			var found bool
			if found, died = stripAfter(t, seed, part); found {
				owed++
			}
		}
	}
	if t.Logf("%d deaths with a change that was owed", owed); owed == 0 {
		t.Error("no dead client ever owed a change")
	}
}

// stripped is the size of nodes that come and go with their chunk.
const stripped = 5000

// stripAfter lets a client die after a part of its requests while it rewrites a node, whose memory
// then gets another use.
func stripAfter(t *testing.T, seed uint64, part int) (found, died bool) {
	w := simenv.New(simenv.Options{Seed: seed, MaxEvents: 1_000_000})
	plan := &sim.Plan{
		Capabilities: verbs.Capabilities{MaskedAtomics: true, WholeWrite: 8}, Tear: 4, Delay: 100, Gap: 100,
		Faults: []sim.Fault{{Kind: sim.Crash, Process: "victim", Part: part}},
	}
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 4, Intents: 6, Chunks: 3, ChunkBytes: 16 << 10, Fabric: sim.Options{Plan: plan}})
	must(t, err)
	err = w.Run(func(p *simenv.Process) {
		cl, err := c.Open(p)
		must(t, err)
		words, err := cl.DeclareStrip(stripped)
		must(t, err)
		node, err := cl.AllocateBlock(stripped, pool.Nil)
		must(t, err)
		word, err := words.WordOf(node)
		must(t, err)
		victim, over := w.NewProcess("victim"), p.NewEvent()
		var id uint32
		victim.Go("main", func() {
			defer over.Set()
			cl, err := c.Open(victim)
			must(t, err)
			id = cl.Client()
			rewriteUnder(t, cl, pool.Word{At: word, Node: node})
		})
		over.Wait(env.Forever)
		if died = victim.Dead(); !died {
			return
		}
		p.Sleep(time.Millisecond)
		must(t, c.Control(p).Fence(1, []uint32{id}, time.Second))
		found = c.UsedIntents(1) > 0
		cl.Retire(node, stripped)
		for used := c.UsedChunks(); c.UsedChunks() == used; {
			p.Sleep(lease / 10)
		}
		// All that there is, which looks like a lock word that says Repair.
		fill := bytes.Repeat([]byte{0xFF}, 64)
		s, err := cl.NewSession(4096)
		must(t, err)
		b, err := s.Buffer(len(fill))
		must(t, err)
		copy(b, fill)
		var nodes []pool.Addr
		for s.Begin(); ; {
			a, err := cl.AllocateBlock(len(b), pool.Nil)
			if err != nil {
				break
			}
			s.Write(pool.Sole, a, b)
			must(t, s.Post())
			nodes = append(nodes, a)
		}
		s.End()
		other, err := c.Open(p)
		must(t, err)
		r, err := other.NewSession(4096)
		must(t, err)
		must(t, r.RepairWords())
		for _, a := range nodes {
			if got := c.Memory(1, verbs.RegionData)[a.Offset():][:len(fill)]; !bytes.Equal(got, fill) {
				t.Fatalf("seed %d, dead after part %d: a repair changed node %v, which was not there then", seed, part, a)
			}
		}
	})
	if err != nil {
		t.Fatalf("seed %d, dead after part %d: %v", seed, part, err)
	}
	return found, died
}

// rewriteUnder rewrites a node under its lock word.
func rewriteUnder(t *testing.T, cl *pool.Pool, w pool.Word) {
	s, err := cl.NewSession(4096)
	must(t, err)
	image, err := s.Buffer(256)
	must(t, err)
	for i := range image {
		image[i] = 0x77
	}
	s.Begin()
	_, err = s.Acquire(w)
	must(t, err)
	must(t, s.ReserveRewrite(w.Node, len(image)))
	s.Rewrite(w.Node, image)
	must(t, s.PostRelease(0, 0))
	s.End()
}
