package poolsim_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// bundleNode is the size of nodes: word 0 counts the bundles, word 1 the changes of this node
// alone, and all the others repeat word 0, so that a torn node shows.
const bundleNode = 128

// TestCrashInBundle kills a client after every part of every request of RewriteAll. Whoever takes
// the lock of any of the nodes then finds all of them changed or none, whatever was done to single
// nodes since.
func TestCrashInBundle(t *testing.T) {
	runs, seeds := 0, uint64(8)
	for seed := range seeds {
		for part := 1; ; part++ {
			runs++
			if crashInBundle(t, seed, part) {
				break
			}
		}
	}
	t.Logf("%d crashes", runs-int(seeds))
}

func crashInBundle(t *testing.T, seed uint64, part int) (ended bool) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: seed, MaxEvents: 1_000_000, Preempt: 6})
	plan := &sim.Plan{
		Capabilities: verbs.Capabilities{MaskedAtomics: seed%2 == 0, WholeWrite: 8}, Tear: 1 + int(seed)%4, Reorder: true, Delay: 100, Gap: 100,
		Faults: []sim.Fault{{Kind: sim.Crash, Process: "victim", Part: part}},
	}
	c, err := poolsim.New(w, poolsim.Options{Servers: 1 + int(seed)%3, Locks: 64, Lease: lease, Fabric: sim.Options{Plan: plan}})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Run(func(p *simenv.Process) {
		cl, err := c.Open(p)
		must(t, err)
		var nodes []pool.Addr
		for len(nodes) < 3 {
			a, err := cl.Allocate(bundleNode, pool.Nil)
			must(t, err)
			nodes = append(nodes, a)
		}
		victim, over := w.NewProcess("victim"), p.NewEvent()
		victim.Go("main", func() {
			defer over.Set()
			cl, err := c.Open(victim)
			must(t, err)
			b := newBundler(t, cl, nodes)
			for range 2 {
				b.all(int(seed) % 3)
			}
		})
		over.Wait(env.Forever)
		ended = !victim.Dead()

		// Several sessions change single nodes, each beginning with another one, while the dead
		// client is fenced here and there.
		g := env.NewWaitGroup(p)
		found := make([][]uint64, 3)
		for i := range found {
			proc, done := w.NewProcess(fmt.Sprint("survivor ", i)), p.NewEvent()
			proc.Go("main", func() {
				defer done.Set()
				cl, err := c.Open(proc)
				must(t, err)
				b := newBundler(t, cl, nodes)
				for n := range 6 {
					found[i] = append(found[i], b.one((i+n)%3))
				}
			})
			g.Go("wait", func() { done.Wait(env.Forever) })
		}
		g.Wait(env.Forever)
		b := newBundler(t, cl, nodes)
		bundles := b.look(0)[0]
		for _, counts := range found {
			for _, n := range counts {
				if n != bundles {
					w.Fail(fmt.Errorf("a node was found after %d bundles, in the end there are %d", n, bundles))
				}
			}
		}
		for i := range nodes {
			if got := b.look(i); got[0] != bundles || got[1] != 6 {
				w.Fail(fmt.Errorf("node %d says %v, want %d bundles and 6 single changes", i, got, bundles))
			}
		}
		if bundles > 2 || ended && bundles != 2 {
			w.Fail(fmt.Errorf("%d bundles", bundles))
		}
		b.all(1)
		must(t, cl.Alive())
	})
	if err != nil {
		t.Fatalf("seed %d, dead after part %d: %v", seed, part, err)
	}
	return ended
}

// bundler changes nodes, with a session for each.
type bundler struct {
	t           *testing.T
	cl          *pool.Pool
	nodes       []pool.Addr
	sessions    []*pool.Session
	node, image [][]byte
}

func newBundler(t *testing.T, cl *pool.Pool, nodes []pool.Addr) *bundler {
	b := &bundler{t: t, cl: cl, nodes: nodes}
	for range nodes {
		s, err := cl.NewSession(4096)
		must(t, err)
		node, err := s.Buffer(bundleNode)
		must(t, err)
		image, err := s.Buffer(bundleNode)
		must(t, err)
		b.sessions, b.node, b.image = append(b.sessions, s), append(b.node, node), append(b.image, image)
	}
	return b
}

// all counts one bundle in every node.
func (b *bundler) all(main int) { must(b.t, b.tryAll(main)) }

// tryAll is all for a client that may be fenced meanwhile.
func (b *bundler) tryAll(main int) error {
	if err := b.sessions[main].Lock(b.nodes[main], b.node[main]); err != nil {
		return err
	}
	var changes []pool.Change
	for i, s := range b.sessions {
		for i != main {
			ok, err := s.TryLock(b.nodes[i], b.node[i])
			if err != nil {
				return err
			}
			if ok {
				break
			}
			b.cl.Env().Yield() // in a test nobody who holds this one waits for another
		}
		b.change(i, 1, 0)
		changes = append(changes, pool.Change{Session: s, Node: b.nodes[i], Image: b.image[i]})
	}
	return pool.RewriteAll(bundleNode, main, changes...)
}

// one counts one change of node i alone and says how many bundles it found.
func (b *bundler) one(i int) uint64 {
	must(b.t, b.tryOne(i))
	return binary.LittleEndian.Uint64(b.image[i])
}

// tryOne is one for a client that may be fenced meanwhile.
func (b *bundler) tryOne(i int) error {
	s := b.sessions[i]
	if err := s.Lock(b.nodes[i], b.node[i]); err != nil {
		return err
	}
	if err := s.ReserveRewrite(b.nodes[i], bundleNode); err != nil {
		return err
	}
	b.change(i, 0, 1)
	s.Rewrite(b.nodes[i], b.image[i])
	return s.PostUnlock()
}

// look reads node i under its lock.
func (b *bundler) look(i int) [2]uint64 {
	must(b.t, b.touch(i))
	b.change(i, 0, 0)
	return [2]uint64{binary.LittleEndian.Uint64(b.image[i]), binary.LittleEndian.Uint64(b.image[i][8:])}
}

// touch takes the lock of node i, and so repairs what it has to, and gives it up.
func (b *bundler) touch(i int) error {
	if err := b.sessions[i].Lock(b.nodes[i], b.node[i]); err != nil {
		return err
	}
	return b.sessions[i].PostUnlock()
}

// change makes the image of node i from what was read of it.
func (b *bundler) change(i int, bundles, singles uint64) {
	n := binary.LittleEndian.Uint64(b.node[i])
	for at := 16; at < bundleNode; at += 8 {
		if got := binary.LittleEndian.Uint64(b.node[i][at:]); got != n {
			b.t.Errorf("node %d is torn under its lock: %d and %d", i, n, got)
		}
		binary.LittleEndian.PutUint64(b.image[i][at:], n+bundles)
	}
	binary.LittleEndian.PutUint64(b.image[i], n+bundles)
	binary.LittleEndian.PutUint64(b.image[i][8:], binary.LittleEndian.Uint64(b.node[i][8:])+singles)
}
