package poolsim_test

import (
	"encoding/binary"
	"errors"
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

// seeds is how many a test runs.
const seeds uint64 = 300

// kinds are faults that no lock is lost by.
var kinds = []sim.Kind{sim.Freeze, sim.Drift, sim.Jump}

// simulate runs body in the world of a seed, with an adversary.
func simulate(t *testing.T, seed uint64, o poolsim.Options, body func(c *poolsim.Cluster, p *simenv.Process)) *simenv.World {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: seed, Preempt: 6})
	plan := sim.NewPlan(w.Faults(), sim.Menu{
		Kinds: kinds, Processes: []string{"client-1", "client-2"}, Parts: 500, Most: 4, Longest: 10 * time.Millisecond,
	})
	o.Fabric.Plan = plan
	c, err := poolsim.New(w, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(func(p *simenv.Process) { body(c, p) }); err != nil {
		t.Fatalf("%v\nplan %v", err, plan)
	}
	if t.Failed() {
		t.Fatalf("seed %d, plan %v", seed, plan)
	}
	return w
}

// client runs f with a pool of its own in a process of its own, as a member of g.
func client(t *testing.T, c *poolsim.Cluster, p *simenv.Process, g *env.WaitGroup, n int, f func(p *pool.Pool) error) {
	proc := p.World().NewProcess(fmt.Sprintf("client-%d", n))
	done := p.NewEvent()
	proc.Go("main", func() {
		defer done.Set()
		cl, err := c.Open(proc)
		if err == nil {
			err = f(cl)
		}
		if err == nil {
			err = cl.Close()
		}
		if err != nil {
			t.Errorf("client %d: %v", n, err)
		}
	})
	g.Go(fmt.Sprintf("wait for client %d", n), func() { done.Wait(env.Forever) })
}

// increment adds 1 to both ends of a node under its lock, n times.
func increment(p *pool.Pool, node pool.Addr, n int) error {
	s, err := p.NewSession(4096)
	if err != nil {
		return err
	}
	buf, err := s.Buffer(256)
	if err != nil {
		return err
	}
	for range n {
		s.Begin()
		if err := s.Lock(node, buf); err != nil {
			return err
		}
		first, last := binary.LittleEndian.Uint64(buf), binary.LittleEndian.Uint64(buf[248:])
		if first != last {
			return fmt.Errorf("under its lock the node says %d and %d", first, last)
		}
		for i := 0; i < 256; i += 8 {
			binary.LittleEndian.PutUint64(buf[i:], first+1)
		}
		s.Write(pool.Shared, node, buf)
		if err := s.PostUnlock(); err != nil {
			return err
		}
	}
	return s.Close()
}

func lockedCounters(t *testing.T, seed uint64) *simenv.World {
	const each = 15
	return simulate(t, seed, poolsim.Options{Locks: 4}, func(c *poolsim.Cluster, p *simenv.Process) {
		mine, err := c.Open(p)
		if err != nil {
			t.Fatal(err)
		}
		node, err := mine.Allocate(256, pool.Nil)
		if err != nil {
			t.Fatal(err)
		}
		g := env.NewWaitGroup(p)
		for n := 1; n <= 3; n++ {
			client(t, c, p, g, n, func(cl *pool.Pool) error {
				inner := env.NewWaitGroup(cl.Env())
				var errs []error
				for i := range 2 {
					inner.Go(fmt.Sprint("session ", i), func() { errs = append(errs, increment(cl, node, each)) })
				}
				inner.Wait(env.Forever)
				return errors.Join(errs...)
			})
		}
		g.Wait(env.Forever)
		if got := binary.LittleEndian.Uint64(c.Memory(node.Server(), verbs.RegionData)[node.Offset():]); !t.Failed() && got != 6*each {
			t.Errorf("the counter is %d, want %d", got, 6*each)
		}
		for i, b := range c.Memory(node.Server(), verbs.RegionLocks) {
			if b != 0 && !t.Failed() {
				t.Fatalf("the lock table is not free at byte %d", i)
			}
		}
	})
}

func TestLocksExcludeUnderTheAdversary(t *testing.T) {
	for seed := range seeds {
		lockedCounters(t, seed)
	}
}

func TestSeedReplays(t *testing.T) {
	for seed := range uint64(10) {
		if a, b := lockedCounters(t, seed), lockedCounters(t, seed); a.Hash() != b.Hash() || a.Events() != b.Events() {
			t.Errorf("seed %d: %d events with hash %#x, then %d with %#x", seed, a.Events(), a.Hash(), b.Events(), b.Hash())
		}
	}
}

func TestSuperblockIsMadeOnceUnderTheAdversary(t *testing.T) {
	for seed := range seeds {
		simulate(t, seed, poolsim.Options{}, func(c *poolsim.Cluster, p *simenv.Process) {
			g := env.NewWaitGroup(p)
			var roots []pool.Addr
			var secrets [][2]uint64
			for n := 1; n <= 4; n++ {
				client(t, c, p, g, n, func(cl *pool.Pool) error {
					s, err := cl.NewSession(64 << 10)
					if err != nil {
						return err
					}
					root, err := s.CreateSuperblock("toy", []byte(`{}`), pool.NewAddr(1, uint64(n)<<20))
					if err != nil {
						return err
					}
					sb, again, err := s.ReadSuperblock()
					if err == nil && (sb.Identity != poolsim.Identity || again != root) {
						err = fmt.Errorf("made with root %v, read as %+v with root %v", root, sb, again)
					}
					roots = append(roots, root)
					if err == nil {
						secrets = append(secrets, sb.Secret)
					}
					return errors.Join(err, s.Close())
				})
			}
			g.Wait(env.Forever)
			for _, r := range roots {
				if r != roots[0] {
					t.Errorf("roots %v", roots)
				}
			}
			for _, s := range secrets {
				if s != secrets[0] {
					t.Errorf("secrets %x", secrets)
				}
			}
		})
	}
}

// TestHandoversAreCounted: of four sessions that want one lock, each but the last passes it on.
func TestHandoversAreCounted(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		cl, err := c.Open(p)
		must(t, err)
		node, err := cl.Allocate(256, pool.Nil)
		must(t, err)
		g := env.NewWaitGroup(p)
		for i := range 4 {
			g.Go(fmt.Sprint("session ", i), func() { must(t, increment(cl, node, 1)) })
		}
		g.Wait(env.Forever)
		if _, n := cl.Locks(); n != 3 {
			t.Errorf("%d handovers, want 3", n)
		}
		must(t, cl.Close())
	})
}
