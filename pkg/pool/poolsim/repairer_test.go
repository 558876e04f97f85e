package poolsim_test

import (
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// TestRepairerHalfFenced stops the repairer of a half-made RewriteAll after every part of its
// requests, and fences it on some of the memory servers only. A third client repairs as far as it
// may and changes the nodes. Then the repairer goes on: no change that was confirmed may be lost,
// whichever servers still take the repairer's requests.
func TestRepairerHalfFenced(t *testing.T) {
	runs, step := 0, 1
	for part := 1; ; part += step {
		whole := halfFenced{part: part, stop: 1 << 20, masked: true, full: part%2 == 0}
		if err := whole.bundles(t); err != nil {
			t.Fatalf("victim dead after part %d: %v", part, err)
		}
		if !whole.crashed {
			break
		}
		if !whole.repaired {
			continue
		}
		for stop := 1; ; stop += step {
			stopped := false
			for _, fenced := range [][]uint16{{1}, {2}, {2, 3}} {
				h := halfFenced{part: part, stop: stop, fenced: fenced, masked: (part+stop)%2 == 0, full: whole.full}
				if err := h.bundles(t); err != nil {
					t.Fatalf("victim dead after part %d, repairer stopped after part %d and fenced on %v first, masked atomics %v: %v", part, stop, fenced, h.masked, err)
				}
				runs++
				stopped = stopped || h.stopped
			}
			if !stopped {
				break
			}
		}
	}
	t.Logf("%d runs", runs)
	if runs == 0 {
		t.Error("there was nothing to repair")
	}
}

// TestBundlerHalfFenced is the same with a client that makes the bundle in the place of the
// repairer.
func TestBundlerHalfFenced(t *testing.T) {
	runs := 0
	for stop := 1; ; stop++ {
		stopped := false
		for n, fenced := range [][]uint16{{1}, {2}, {3}, {1, 2}, {2, 3}} {
			h := halfFenced{stop: stop, fenced: fenced, masked: stop%2 == 0, full: (stop/2+n)%2 == 0}
			if err := h.bundles(t); err != nil {
				t.Fatalf("stopped after part %d and fenced on %v first, masked atomics %v, first server full %v: %v", stop, fenced, h.masked, h.full, err)
			}
			runs++
			stopped = stopped || h.stopped
		}
		if !stopped {
			break
		}
	}
	t.Logf("%d runs", runs)
}

// bundles is a run with a bundle of three nodes.
func (h *halfFenced) bundles(t *testing.T) error {
	t.Helper()
	return h.run(t, 3, func(c *poolsim.Cluster, p *simenv.Process) error { return h.changeBundle(t, c, p) })
}

func (h *halfFenced) changeBundle(t *testing.T, c *poolsim.Cluster, p *simenv.Process) error {
	cl, err := c.Open(p)
	must(t, err)
	var nodes []pool.Addr
	for len(nodes) < 3 { // one on each server, the main one on the first
		a, err := cl.Allocate(bundleNode, pool.Nil)
		must(t, err)
		nodes = append(nodes, a)
	}
	if h.full {
		fill(t, cl, nodes[0])
	}
	rest := h.act(t, c, p, nodes, func(b *bundler) error { return b.tryAll(0) }, func(b *bundler) error { return b.touch(0) })
	if rest == nil {
		return nil
	}
	b := newBundler(t, cl, nodes)
	bundles := b.one(0)
	for range 3 {
		b.one(1)
		b.one(2)
	}
	want := [][2]uint64{{bundles, 1}, {bundles, 3}, {bundles, 3}}
	judge := func(when string) error {
		for i := range nodes {
			if got := b.look(i); got != want[i] {
				return fmt.Errorf("node %d says %v %s, want %d bundles and %d changes", i, got, when, want[i][0], want[i][1])
			}
		}
		return nil
	}
	if err := judge("before the one that stopped goes on"); err != nil {
		return err
	}
	rest()
	return judge("after the one that stopped went on")
}

// fill takes all memory of the server that a is on, for a client that lives on.
func fill(t *testing.T, cl *pool.Pool, a pool.Addr) {
	t.Helper()
	for near := a; near.Server() == a.Server(); {
		var err error
		near, err = cl.AllocateBlock(bundleNode, a)
		must(t, err)
	}
}

// TestImageElsewhere: a node on a server without memory is changed by way of an image on another
// server. A client that dies after any part of its requests leaves the node as it was or as it is
// to be, and so does one that stands still and is fenced on one of the two servers.
func TestImageElsewhere(t *testing.T) {
	runs, repaired := 0, 0
	act := func(h halfFenced, change func(h *halfFenced) error) (acted bool) {
		if err := change(&h); err != nil {
			t.Fatalf("%+v: %v", h, err)
		}
		runs++
		if h.repaired {
			repaired++
		}
		return h.crashed || h.stopped
	}
	one := func(h *halfFenced) error {
		return h.run(t, 2, func(c *poolsim.Cluster, p *simenv.Process) error { return h.changeOne(t, c, p) })
	}
	bundle := func(h *halfFenced) error { return h.bundles(t) }
	for seed := range uint64(2) {
		for _, change := range []func(h *halfFenced) error{one, bundle} {
			for part := 1; act(halfFenced{part: part, stop: 1 << 20, full: true, seed: seed, masked: part%2 == 0}, change); part++ {
			}
			for stop := 1; act(halfFenced{stop: stop, fenced: []uint16{1 + uint16(stop%2)}, full: true, seed: seed}, change); stop++ {
			}
		}
	}
	t.Logf("%d runs, %d with a repair", runs, repaired)
	if repaired == 0 {
		t.Error("there was nothing to repair")
	}
}

// changeOne is a run in which one node is changed on a server that is full.
func (h *halfFenced) changeOne(t *testing.T, c *poolsim.Cluster, p *simenv.Process) error {
	cl, err := c.Open(p)
	must(t, err)
	near, err := cl.Allocate(bundleNode, pool.Nil)
	must(t, err)
	nodes := []pool.Addr{near}
	fill(t, cl, near)
	rest := h.act(t, c, p, nodes, func(b *bundler) error { return b.tryOne(0) }, func(b *bundler) error { return b.touch(0) })
	if rest == nil {
		return nil
	}
	b := newBundler(t, cl, nodes)
	before := b.look(0)[1]
	b.one(0)
	judge := func(when string) error {
		if got := b.look(0)[1]; got != before+1 || before > 1 {
			return fmt.Errorf("%d changes %s, want one more than %d", got, when, before)
		}
		return nil
	}
	if err := judge("before the one that stopped goes on"); err != nil {
		return err
	}
	rest()
	return judge("after the one that stopped went on")
}
