package poolsim_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// TestSwapHalfFenced stops a client after every part of its requests that changes the root word on
// one server and a node on another one together, or that repairs what another client left of such a
// change, and fences it on one of the servers only. Others then find both changes made or none, and
// what they change stays.
func TestSwapHalfFenced(t *testing.T) {
	runs, repairs := 0, 0
	for part := 0; ; part++ { // 0: the client that stops is the one that makes the change
		crashed, repaired := part == 0, part == 0
		if part > 0 {
			h := halfFenced{part: part, stop: 1 << 20, fenced: []uint16{1}, masked: true}
			if err := h.swap(t, false); err != nil {
				t.Fatalf("victim dead after part %d: %v", part, err)
			}
			crashed, repaired = h.crashed, h.repaired
		}
		if !crashed {
			break
		}
		for stop := 1; repaired; stop++ {
			stopped := false
			for _, fenced := range [][]uint16{{1}, {2}, {1, 2}} {
				for _, rootFirst := range []bool{false, true} {
					h := halfFenced{part: part, stop: stop, fenced: fenced, masked: stop%2 == 0}
					if err := h.swap(t, rootFirst); err != nil {
						t.Fatalf("victim dead after part %d, stopped after part %d and fenced on %v first, the lock of the root first %v: %v", part, stop, fenced, rootFirst, err)
					}
					runs++
					stopped = stopped || h.stopped
					if h.repaired {
						repairs++
					}
				}
			}
			if !stopped {
				break
			}
		}
	}
	t.Logf("%d runs, in %d of them the one that stopped had repaired something before", runs, repairs)
	if repairs == 0 {
		t.Error("there was nothing to repair")
	}
}

// swap is a run with a bundle of a node and the root word, whose lock the others take first if
// rootFirst.
func (h *halfFenced) swap(t *testing.T, rootFirst bool) error {
	t.Helper()
	return h.run(t, 2, func(c *poolsim.Cluster, p *simenv.Process) error { return h.changeRoot(t, c, p, rootFirst) })
}

func (h *halfFenced) changeRoot(t *testing.T, c *poolsim.Cluster, p *simenv.Process, rootFirst bool) error {
	cl, err := c.Open(p)
	must(t, err)
	// the second one is the root, and lies on the second server; the third one becomes the root
	var nodes []pool.Addr
	for len(nodes) < 3 {
		a, err := cl.Allocate(bundleNode, pool.Nil)
		must(t, err)
		nodes = append(nodes, a)
	}
	b := newBundler(t, cl, nodes)
	_, err = b.sessions[0].CreateSuperblock("swaps", json.RawMessage("{}"), nodes[1])
	must(t, err)
	rest := h.act(t, c, p, nodes, (*bundler).shrink, func(b *bundler) error { return b.touch(1) })
	if rest == nil {
		return nil
	}
	takeRoot := func() pool.Addr {
		root, err := b.sessions[0].LockRoot(b.node[0])
		must(t, err)
		return root
	}
	if rootFirst {
		takeRoot()
		must(t, b.sessions[0].PostUnlock())
	}
	made := b.one(1)
	root := takeRoot()
	if want := map[uint64]pool.Addr{0: nodes[1], 1: nodes[2]}[made]; root != want {
		return fmt.Errorf("the node says %d changes, and the root is %v", made, root)
	}
	won, _, err := b.sessions[0].SwapRoot(root, nodes[0])
	must(t, err)
	must(t, b.sessions[0].PostUnlock())
	if !won {
		return fmt.Errorf("the root changes under its lock")
	}
	rest()
	root = takeRoot()
	must(t, b.sessions[0].PostUnlock())
	if got := b.look(1); root != nodes[0] || got != [2]uint64{made, 1} {
		return fmt.Errorf("after the one that stopped went on the root is %v, and the node says %v, want %v, %d and 1", root, got, nodes[0], made)
	}
	return nil
}

// shrink counts a bundle in node 1, if that is the root, and makes node 2 the root.
func (b *bundler) shrink() error {
	s, o := b.sessions[1], b.sessions[0]
	if err := s.Lock(b.nodes[1], b.node[1]); err != nil {
		return err
	}
	root, ok, err := o.TryLockRoot(b.node[0])
	if err != nil {
		return err
	}
	if !ok || root != b.nodes[1] {
		b.t.Errorf("the root is %v, locked %v", root, ok)
	}
	b.change(1, 1, 0)
	return pool.RewriteAndSwap(bundleNode, pool.RootSwap{Session: o, From: root, To: b.nodes[2]}, pool.Change{Session: s, Node: b.nodes[1], Image: b.image[1]})
}

// TestSwapToNowhere: a bundle whose swap would leave no root is refused before anything is posted.
func TestSwapToNowhere(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it is not refused")
		}
	}()
	_ = pool.RewriteAndSwap(bundleNode, pool.RootSwap{From: pool.NewAddr(1, 64), To: pool.Nil}, pool.Change{})
}
