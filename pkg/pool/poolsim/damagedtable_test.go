package poolsim_test

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestDamagedTable: of an adopted chunk whose table has a word that says nothing, the nodes that
// the table does say serve, and no slab gets another use: it may be that of nodes in use.
func TestDamagedTable(t *testing.T) {
	const size = 1000
	w := simenv.New(simenv.Options{Seed: 1})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 4, Chunks: 1, ChunkBytes: 64 << 10})
	must(t, err)
	must(t, w.Run(func(p *simenv.Process) {
		used, id := leaveNodes(t, c, w.NewProcess("victim"), p, size, false)
		must(t, c.Control(p).Fence(1, []uint32{id}, time.Second))
		chunk := c.Chunks()[0]
		words := map[pool.Addr]bool{} // slabs that the table says after the damage
		damaged := false
		for a := range used {
			slab := uint64(a-chunk.First) >> 12
			if word := chunk.Memory[8*slab:][:8]; !damaged && binary.LittleEndian.Uint64(word) != 0 {
				binary.LittleEndian.PutUint64(word, 0x77)
				damaged = true
				words[pool.Addr(slab)] = false
			}
			if _, ok := words[pool.Addr(slab)]; !ok {
				words[pool.Addr(slab)] = true
			}
		}
		cl, err := c.Open(p)
		must(t, err)
		cl.SetMarks(func(pool.Addr, []byte) pool.Mark { return pool.Used })
		taken := 0
		for ; ; taken++ {
			a, err := cl.AllocateBlock(size, pool.Nil)
			if errors.Is(err, pool.ErrPoolFull) {
				break
			}
			must(t, err)
			if used[a] || !words[pool.Addr(uint64(a-chunk.First)>>12)] {
				t.Errorf("node %v was handed out of a chunk with a damaged table, in use: %v", a, used[a])
			}
		}
		if _, err := cl.AllocateBlock(64, pool.Nil); !errors.Is(err, pool.ErrPoolFull) || taken == 0 {
			t.Errorf("%d nodes were free of the slabs that the table says; those of another size: %v", taken, err)
		}
		before := c.Memory(1, verbs.RegionData)[chunk.First.Offset()]
		must(t, cl.Close())
		if len(c.Chunks()) != 1 || c.Memory(1, verbs.RegionData)[chunk.First.Offset()] != before {
			t.Error("the chunk was given back")
		}
	}))
}
