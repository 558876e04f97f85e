package chime

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// halfLease is the lease of clients that are fenced on one server first.
const halfLease = 80 * time.Millisecond

// clientOf is a client of a simulated cluster, with one session.
type clientOf struct {
	*tree
	*session
	late *poolsim.Late
	t    *testing.T
}

func openIn(t *testing.T, c *poolsim.Cluster, p *simenv.Process) *clientOf {
	late := c.NewLate(p)
	pl, err := c.OpenWith(p, late, 0)
	if err != nil {
		t.Fatal(err)
	}
	x, err := Open(pl, index.Options{Uint64: true, MaxValueBytes: 8})
	if err != nil {
		t.Fatal(err)
	}
	s, err := x.(*tree).newSession()
	if err != nil {
		t.Fatal(err)
	}
	return &clientOf{x.(*tree), s, late, t}
}

// leafOf is the leaf of a key.
func (c *clientOf) leafOf(k uint64) pool.Addr {
	c.session.Begin()
	defer c.session.End()
	path, err := c.Descend(key64(k))
	if err != nil {
		c.t.Fatal(err)
	}
	return path.Addr()
}

func (c *clientOf) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// TestSiblingOfHalfFencedClient: a client has a copy of a parent, with leaves A, on one server, and
// B, on the other one. It stands still, and is fenced on B's server, where its lease ends first. B
// is merged into A, and A is split again, at another key. The client goes on, and inserts a key
// that A does not hold any more, but its copy of the parent says so. If the new leaf has the memory
// of B, so does the sibling in A: it is used again only when the client is fenced on A's server,
// too, where the client compares it.
func TestSiblingOfHalfFencedClient(t *testing.T) {
	if !invariants.Enabled {
		t.Fatal("the stop is in Pause: -tags invariants")
	}
	staged := false
	for spare := range 2 {
		staged = siblingOfHalfFenced(t, spare) || staged
	}
	if !staged {
		t.Error("the new leaf never had the memory of the old one: this tests nothing")
	}
}

// siblingOfHalfFenced reports whether the new leaf has the memory of the old one. As many nodes are
// taken and given back before as spare: servers take turns.
func siblingOfHalfFenced(t *testing.T, spare int) (staged bool) {
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 10_000_000})
	c, err := poolsim.New(w, poolsim.Options{Servers: 2, Chunks: 16, Lease: halfLease})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Run(func(p *simenv.Process) {
		d := openIn(t, c, p)
		const step, n = 1000, 600
		var leaves [][]uint64 // the keys of each
		var addrs []pool.Addr
		for i := range uint64(n) {
			d.must(d.Insert(key64(i*step), key64(i)))
		}
		for i := range uint64(n) {
			if a := d.leafOf(i * step); len(addrs) == 0 || addrs[len(addrs)-1] != a {
				addrs, leaves = append(addrs, a), append(leaves, nil)
			}
			leaves[len(leaves)-1] = append(leaves[len(leaves)-1], i*step)
		}
		i := 1
		for ; addrs[i].Server() == addrs[i+1].Server(); i++ {
		}
		a, b := addrs[i], addrs[i+1]
		keep := func(of []uint64, n int) []uint64 {
			for _, k := range of[n:] {
				d.must(d.Delete(key64(k)))
			}
			return of[:n]
		}
		inA, inB := keep(leaves[i], 20), keep(leaves[i+1], 16)
		high, stray := inB[0], inA[19]+500 // where A ends; between the last key of A and B
		if d.leafOf(inA[0]) != a || d.leafOf(inB[0]) != b {
			t.Fatal("the leaves are merged")
		}

		pc, ready, begin, over := w.NewProcess("half fenced"), p.NewEvent(), p.NewEvent(), p.NewEvent()
		var half *clientOf
		var answer error
		look := func() {
			_, err := half.Lookup(key64(inA[0]), nil)
			d.must(err)
		}
		pc.Go("main", func() {
			half = openIn(t, c, pc)
			look()
			ready.Set()
			begin.Wait(env.Forever)
			look() // its copies are new when its renewals have no answer any more
			half.late.Server = b.Server()
			pc.Sleep(halfLease / 2)
			half.session.Env = poolsim.NewStop(pc, 0)
			ready.Set()
			answer = half.Insert(key64(stray), key64(1))
			over.Set()
		})
		ready.Wait(env.Forever)
		p.Sleep(3 * halfLease)
		begin.Set()
		ready.Wait(env.Forever)
		stop := half.session.Env.(*poolsim.Stop)
		stop.Await() // it knows where to go, and has posted nothing
		pc.Freeze()

		// B is merged into A
		for k := 15; d.leafOf(inB[0]) != a; k-- {
			if k == 0 {
				t.Fatal("the leaves are not merged")
			}
			d.must(d.Delete(key64(inB[k])))
		}
		before := d.Pool.Reclaimed()
		for n := 0; d.Pool.Reclaimed() == before; n++ {
			if n == 10_000 {
				t.Fatal("the memory does not come back")
			}
			p.Sleep(100 * time.Microsecond)
		}
		for range spare {
			other, err := d.PS.Allocate(d.tree.Lay.NodeBytes, pool.Nil)
			d.must(err)
			d.Pool.Free(other, d.tree.Lay.NodeBytes)
		}
		// A is split, within what it held at first
		for k := uint64(1); d.leafOf(high-1) == a && k < 60; k++ {
			d.must(d.Insert(key64(inA[0]+k), key64(k)))
		}
		if staged = d.leafOf(high-1) == b && d.leafOf(stray) == b; !staged {
			pc.Kill()
			return
		}
		pc.Thaw()
		stop.GoOn()
		over.Wait(halfLease)
		if _, err := d.Lookup(key64(stray), nil); answer == nil && err != nil {
			t.Errorf("what the half-fenced client inserted: %v", err)
		}
		for k := uint64(100); k < 400; k++ {
			d.must(d.Insert(key64(inA[0]+k), key64(k)))
		}
		_, err := d.Check()
		d.must(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	return staged
}
