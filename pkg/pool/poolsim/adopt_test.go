package poolsim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// adoption is a run in which a client with nodes of several sizes dies in some part of its
// requests, and another one adopts what it left.
type adoption struct {
	crash          int // the part
	crashed        bool
	adopted, taken int
}

// sizes of the nodes; two do not fit a slab of these chunks.
var adoptSizes = []int{64, 1088, 256, 5000, 1024}

const adoptChunk = 64 << 10

func (x *adoption) run() error {
	w := simenv.New(simenv.Options{Seed: uint64(x.crash), MaxEvents: 1_000_000})
	plan := &sim.Plan{Capabilities: verbs.Capabilities{WholeWrite: 8}, Tear: 2, Delay: 100, Gap: 100,
		Faults: []sim.Fault{{Kind: sim.Crash, Process: "victim", Part: x.crash}}}
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 64, Chunks: 2, ChunkBytes: adoptChunk, Fabric: sim.Options{Plan: plan}})
	if err != nil {
		return err
	}
	return w.Run(func(p *simenv.Process) {
		if err := x.in(w, c, p); err != nil {
			w.Fail(err)
		}
	})
}

func (x *adoption) in(w *simenv.World, c *poolsim.Cluster, p *simenv.Process) error {
	victim, over := w.NewProcess("victim"), p.NewEvent()
	inUse := map[pool.Addr]int{} // nodes that the victim wrote and published, and their sizes
	var id uint32
	victim.Go("main", func() {
		defer over.Set()
		id = 1
		x.victim(c, victim, inUse)
	})
	over.Wait(env.Forever)
	if x.crashed = victim.Dead(); !x.crashed {
		return nil
	}
	if err := c.Control(p).Fence(1, []uint32{id}, time.Second); err != nil {
		return err
	}
	cl, err := c.Open(p)
	if err != nil {
		return err
	}
	cl.SetMarks(func(pool.Addr, []byte) pool.Mark { return pool.Used })
	before := c.UsedChunks()
	// All that there is, in nodes of each size in turn: none may overlap one in use.
	taken := map[pool.Addr]int{}
	for full, n := 0, 0; full < len(adoptSizes); n++ {
		size := adoptSizes[n%len(adoptSizes)]
		a, err := cl.AllocateBlock(size, pool.Nil)
		if err != nil {
			full++
			continue
		}
		full = 0
		taken[a] = size
	}
	if c.UsedChunks() < before {
		return fmt.Errorf("%d chunks were used, %d are", before, c.UsedChunks())
	}
	at := map[pool.Addr]pool.Addr{} // by 64 bytes: whose these are
	for _, nodes := range []map[pool.Addr]int{inUse, taken} {
		for a, size := range nodes {
			for off := 0; off < size; off += 64 {
				if other, ok := at[a+pool.Addr(off)]; ok {
					return fmt.Errorf("node %v of %d bytes overlaps node %v: in use %v, taken %v", a, size, other, inUse, taken)
				}
				at[a+pool.Addr(off)] = a
			}
		}
	}
	for a := range inUse {
		if cl.NodeState(a, inUse[a]) == pool.NodeAvailable {
			return fmt.Errorf("node %v is in use, and would be handed out", a)
		}
	}
	x.adopted, x.taken = len(inUse), len(taken)
	// what is neither is what the victim had in its hands, and what is left over of runs
	bytes := 0
	for _, nodes := range []map[pool.Addr]int{inUse, taken} {
		for _, size := range nodes {
			bytes += size
		}
	}
	if all := c.UsedChunks() * adoptChunk; bytes < all*3/4 {
		return fmt.Errorf("%d bytes of %d are in use or were handed out: slabs were lost", bytes, all)
	}
	return cl.Close()
}

// victim allocates nodes, writes them, and frees some sizes wholly, so that their slabs serve
// others.
func (x *adoption) victim(c *poolsim.Cluster, victim *simenv.Process, inUse map[pool.Addr]int) {
	cl, err := c.Open(victim)
	if err != nil {
		return
	}
	s, err := cl.NewSession(8192)
	if err != nil {
		return
	}
	b, err := s.Buffer(pool.HeadBytes)
	if err != nil {
		return
	}
	b[0] = 1
	s.Begin()
	for round := range 3 {
		var mine []pool.Addr
		size := adoptSizes[round]
		for {
			a, err := cl.AllocateBlock(size, pool.Nil)
			if err != nil || len(mine) == 300 {
				break
			}
			mine = append(mine, a)
		}
		for _, other := range adoptSizes[1:] {
			a, err := cl.AllocateBlock(other, pool.Nil)
			if err != nil {
				continue
			}
			if s.Write(pool.Sole, a, b); s.Post() != nil {
				return
			}
			inUse[a] = other
		}
		for _, a := range mine {
			cl.Free(a, size)
		}
	}
}

// TestAdoptedSlabs: wherever a client dies, who adopts its chunks learns from their tables which
// nodes there are, hands out none that is in use, and loses next to nothing.
func TestAdoptedSlabs(t *testing.T) {
	died, adopted, taken := 0, 0, 0
	for part := 1; ; part++ {
		x := adoption{crash: part}
		if err := x.run(); err != nil {
			t.Fatalf("crash in part %d: %v", part, err)
		}
		if !x.crashed {
			break
		}
		died++
		adopted += x.adopted
		taken += x.taken
	}
	t.Logf("%d crashes, %d nodes in use, %d handed out", died, adopted, taken)
	if died < 40 || adopted < 40 {
		t.Errorf("%d crashes with %d nodes in use: that would prove little", died, adopted)
	}
}
