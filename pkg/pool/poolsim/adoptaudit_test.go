package poolsim_test

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/audit"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// TestAuditWhileAChunkIsAdopted: between the memory server's answer, which makes a chunk the
// adopter's, and the adopter's look at its nodes, the parts of the index in it are unknown to the
// adopter, and not about to be handed out. The audit is made at every moment of the adoption.
func TestAuditWhileAChunkIsAdopted(t *testing.T) {
	const size = 1000
	w := simenv.New(simenv.Options{Seed: 1})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 4, Chunks: 1, ChunkBytes: 64 << 10})
	must(t, err)
	must(t, w.Run(func(p *simenv.Process) {
		used, id := leaveNodes(t, c, w.NewProcess("victim"), p, size, false)
		must(t, c.Control(p).Fence(1, []uint32{id}, time.Second))
		parts := func(yield func(pool.Addr, int) bool) {
			for a := range used {
				if !yield(a, size) {
					return
				}
			}
		}
		cl, err := c.Open(p)
		must(t, err)
		cl.SetMarks(func(pool.Addr, []byte) pool.Mark { return pool.Used })
		over := p.NewEvent()
		p.Go("adopt", func() {
			defer over.Set()
			_, err := cl.AllocateBlock(64, pool.Nil)
			must(t, err)
		})
		// of the adoption, by what the adopter knows of the parts
		moments := map[pool.NodeState]int{}
		for done := false; !done; {
			done = over.Wait(100 * time.Nanosecond)
			r, err := audit.Compare(c.Chunks(), parts, []*pool.Pool{cl})
			if err != nil {
				t.Fatalf("after %v: %v", moments, err)
			}
			if r.Parts != len(used) {
				t.Fatalf("%d parts of the index are found, there are %d", r.Parts, len(used))
			}
			if c.Chunks()[0].Client != cl.Client() {
				continue
			}
			for a := range used {
				moments[cl.NodeState(a, size)]++
			}
		}
		if t.Logf("%v", moments); moments[pool.NodeUnknown] < 10*len(used) || moments[pool.NodeInUse] < len(used) {
			t.Errorf("no audit saw the adoption: %v", moments)
		}
		must(t, cl.Close())
	}))
}
