package poolsim_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestStripsBesideAdoptedNodes: a client that adopts nodes before it declares their lock words uses
// what is free of them, if they have words; if not, no such node is handed out, and their slabs get
// another use when they are empty.
func TestStripsBesideAdoptedNodes(t *testing.T) {
	const size, slabs = 1000, 16
	for _, theirs := range []bool{true, false} {
		t.Run(fmt.Sprintf("lock words of the dead client %v", theirs), func(t *testing.T) {
			w := simenv.New(simenv.Options{Seed: 1})
			c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 4, Intents: 6, Chunks: 1, ChunkBytes: slabs << 12})
			must(t, err)
			must(t, w.Run(func(p *simenv.Process) {
				used, id := leaveNodes(t, c, w.NewProcess("victim"), p, size, theirs)
				must(t, c.Control(p).Fence(1, []uint32{id}, time.Second))
				cl, err := c.Open(p)
				must(t, err)
				cl.SetMarks(func(pool.Addr, []byte) pool.Mark { return pool.Used })
				_, err = cl.AllocateBlock(64, pool.Nil) // it adopts the chunk
				must(t, err)
				words, err := cl.DeclareStrip(size)
				must(t, err)
				taken := map[pool.Addr]bool{}
				for {
					a, err := cl.AllocateBlock(size, pool.Nil)
					if errors.Is(err, pool.ErrPoolFull) {
						break
					}
					must(t, err)
					taken[a] = true
				}
				// 3 nodes of each slab have words; one slab has nodes of 64 bytes
				want := (slabs - 1) * 3
				if theirs {
					want -= len(used)
				} else {
					want -= (len(used) + 3) / 4 * 3
				}
				if len(taken) < want-2 {
					t.Errorf("%d nodes with lock words were to be had beside %d that are in use; want some %d", len(taken), len(used), want)
				}
				for a := range used {
					if cl.NodeState(a, size) != pool.NodeInUse {
						t.Errorf("node %v is in use by the dead client, and its state is %d", a, cl.NodeState(a, size))
					}
				}
				for a := range taken {
					word, err := words.WordOf(a)
					must(t, err)
					if used[a] || c.Memory(1, verbs.RegionData)[word.Offset()] != 0 {
						t.Errorf("node %v, handed out, was in use: %v; its lock word is %v", a, used[a], word)
					}
				}
				must(t, cl.Close())
			}))
		})
	}
}

// leaveNodes lets a client allocate and write some nodes, and allocate a few more, before it dies.
// It returns those that it wrote.
func leaveNodes(t *testing.T, c *poolsim.Cluster, victim, p *simenv.Process, size int, strip bool) (used map[pool.Addr]bool, id uint32) {
	used = map[pool.Addr]bool{}
	over := p.NewEvent()
	victim.Go("main", func() {
		defer over.Set()
		cl, err := c.Open(victim)
		must(t, err)
		id = cl.Client()
		if strip {
			_, err := cl.DeclareStrip(size)
			must(t, err)
		}
		s, err := cl.NewSession(4096)
		must(t, err)
		b, err := s.Buffer(size)
		must(t, err)
		for i := range b {
			b[i] = 0xA5
		}
		for n := range 14 {
			a, err := cl.AllocateBlock(size, pool.Nil)
			must(t, err)
			if n%3 < 2 {
				s.Write(pool.Sole, a, b)
				must(t, s.Post())
				used[a] = true
			}
		}
		victim.Kill()
	})
	over.Wait(env.Forever)
	return used, id
}

// TestStripWithoutRoom: nodes that leave no room for their lock words in a chunk are refused, and
// can be had without.
func TestStripWithoutRoom(t *testing.T) {
	w := simenv.New(simenv.Options{Seed: 1})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Chunks: 1, ChunkBytes: 16 << 10})
	must(t, err)
	must(t, w.Run(func(p *simenv.Process) {
		cl, err := c.Open(p)
		must(t, err)
		most := cl.MostNodeBytes()
		for _, size := range []int{most, most - 8, 1 << 20, 0, -1} {
			if _, err := cl.DeclareStrip(size); err == nil {
				t.Errorf("lock words were declared for nodes of %d bytes, where a chunk has room for %d", size, most)
			}
		}
		words, err := cl.DeclareStrip(most - 64)
		must(t, err)
		a, err := cl.AllocateBlock(most-64, pool.Nil)
		must(t, err)
		_, err = words.WordOf(a)
		must(t, err)
		cl.Free(a, most-64)
		must(t, cl.Close())
	}))
}
