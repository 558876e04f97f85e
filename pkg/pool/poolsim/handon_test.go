package poolsim_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// seat is one session of a client, with a buffer for a node.
type seat struct {
	s    *pool.Session
	node []byte
}

// seats opens n sessions.
func seats(t *testing.T, cl *pool.Pool, n int) (list []seat) {
	t.Helper()
	for range n {
		s, err := cl.NewSession(4096)
		must(t, err)
		b, err := s.Buffer(512)
		must(t, err)
		s.Begin()
		list = append(list, seat{s, b[:256]})
	}
	return list
}

// change adds 1 to the first word of the locked node at a, and hands the image on if it shall.
func (s *seat) change(a pool.Addr, handOn bool) error {
	binary.LittleEndian.PutUint64(s.node, binary.LittleEndian.Uint64(s.node)+1)
	s.s.Write(pool.Shared, a, s.node[:8])
	if handOn {
		s.s.HandOn(a, s.node)
	}
	return s.s.PostUnlock()
}

// oneLock runs body in a calm world, with two nodes of one server, which share its only lock.
func oneLock(t *testing.T, body func(c *poolsim.Cluster, p *simenv.Process, cl *pool.Pool, a [2]pool.Addr)) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: 1})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 1, Lease: lease})
	must(t, err)
	must(t, w.Run(func(p *simenv.Process) {
		cl, err := c.Open(p)
		must(t, err)
		var a [2]pool.Addr
		for i := range a {
			a[i], err = cl.Allocate(512, pool.Nil)
			must(t, err)
		}
		body(c, p, cl, a)
	}))
}

// queued lets f wait for a lock on a goroutine of its own, and returns when it stands in the queue.
func queued(p *simenv.Process, g *env.WaitGroup, f func()) {
	g.Go("waiter", f)
	p.Sleep(100 * time.Microsecond)
}

// reads counts the READs of s.
func (s *seat) reads() uint64 {
	c := s.s.Counters()
	return c.Requests[verbs.Read]
}

// TestImageIsHandedOn: a session that was granted a lock has the node without a READ, if the last
// holder said what it holds, and it is that very node.
func TestImageIsHandedOn(t *testing.T) {
	f := func(what string, other, handOn bool, length int, want uint64) {
		t.Helper()
		oneLock(t, func(c *poolsim.Cluster, p *simenv.Process, cl *pool.Pool, a [2]pool.Addr) {
			s, g := seats(t, cl, 2), env.NewWaitGroup(p)
			node := a[0]
			if other {
				node = a[1]
			}
			must(t, s[0].s.Lock(a[0], s[0].node))
			queued(p, g, func() {
				w := &s[1]
				w.node = w.node[:length]
				for i := range w.node {
					w.node[i] = 0xee
				}
				before := w.reads()
				must(t, w.s.Lock(node, w.node))
				if n := w.reads() - before; n != want {
					t.Errorf("%s: %d READs under the lock, want %d", what, n, want)
				}
				memory := c.Memory(node.Server(), verbs.RegionData)[node.Offset():][:length]
				if !bytes.Equal(w.node, memory) {
					t.Errorf("%s: under its lock the node is %x, and the memory holds %x", what, w.node, memory)
				}
				must(t, w.change(node, true))
			})
			must(t, s[0].change(a[0], handOn))
			g.Wait(env.Forever)
		})
	}
	f("the same node", false, true, 256, 0)
	f("a part of it", false, true, 64, 0)
	f("more than the image", false, true, 512, 1)
	f("another node under the same lock", true, true, 256, 1)
	f("an image that is not handed on", false, false, 256, 1)
}

// TestImagesEndWithTheHandovers: after as many handovers as there may be in a row the lock is
// acquired anew, and the node is READ.
func TestImagesEndWithTheHandovers(t *testing.T) {
	oneLock(t, func(_ *poolsim.Cluster, p *simenv.Process, cl *pool.Pool, a [2]pool.Addr) {
		s, g := seats(t, cl, pool.MaxHandovers+2), env.NewWaitGroup(p)
		must(t, s[0].s.Lock(a[0], s[0].node))
		var reads []uint64
		for i := range s[1:] {
			w := &s[1+i]
			queued(p, g, func() {
				before := w.reads()
				must(t, w.s.Lock(a[0], w.node))
				reads = append(reads, w.reads()-before)
				must(t, w.change(a[0], true))
			})
		}
		must(t, s[0].change(a[0], true))
		g.Wait(env.Forever)
		for i, n := range reads {
			if last := i == pool.MaxHandovers; n > 0 != last {
				t.Errorf("handover %d of at most %d: %d READs", 1+i, pool.MaxHandovers, n)
			}
		}
		if n := binary.LittleEndian.Uint64(s[pool.MaxHandovers+1].node); n != pool.MaxHandovers+2 {
			t.Errorf("the counter is %d after %d changes", n, pool.MaxHandovers+2)
		}
	})
}

// TestWaiterWithoutALockKeepsItsBuffer: an image is copied only to who is granted the lock.
func TestWaiterWithoutALockKeepsItsBuffer(t *testing.T) {
	oneLock(t, func(_ *poolsim.Cluster, p *simenv.Process, cl *pool.Pool, a [2]pool.Addr) {
		s, g := seats(t, cl, 3), env.NewWaitGroup(p)
		must(t, s[0].s.Lock(a[0], s[0].node))
		s[1].s.SetLimit(50 * time.Microsecond)
		s[1].s.Begin()
		queued(p, g, func() {
			if err := s[1].s.Lock(a[0], s[1].node); !errors.Is(err, pool.ErrTimeout) {
				t.Errorf("a lock that is held for longer than the limit: %v", err)
			}
			for i := range s[1].node {
				s[1].node[i] = 0xee
			}
		})
		queued(p, g, func() {
			must(t, s[2].s.Lock(a[0], s[2].node))
			must(t, s[2].change(a[0], true))
		})
		must(t, s[0].change(a[0], true))
		g.Wait(env.Forever)
		if want := bytes.Repeat([]byte{0xee}, len(s[1].node)); !bytes.Equal(s[1].node, want) {
			t.Errorf("the buffer of a session that gave up waiting is %x", s[1].node)
		}
	})
}

// TestGivenImageIsProved: who was given an image and changes nothing gives up the global lock all
// the same, though another session waits. So it learns when the lock was not its client's any more,
// and the image old.
func TestGivenImageIsProved(t *testing.T) {
	for _, fenced := range []bool{false, true} {
		oneLock(t, func(c *poolsim.Cluster, p *simenv.Process, cl *pool.Pool, a [2]pool.Addr) {
			s, g := seats(t, cl, 3), env.NewWaitGroup(p)
			must(t, s[0].s.Lock(a[0], s[0].node))
			unlock := p.NewEvent()
			queued(p, g, func() {
				before := s[1].reads()
				must(t, s[1].s.Lock(a[0], s[1].node))
				if n := s[1].reads() - before; n != 0 {
					t.Errorf("%d READs, and the image was handed on", n)
				}
				unlock.Wait(env.Forever)
				counters := s[1].s.Counters()
				err := s[1].s.PostUnlock()
				if fenced != (err != nil) {
					t.Errorf("fenced %v: a session that changed nothing gives up its lock: %v", fenced, err)
				}
				now := s[1].s.Counters()
				if d := now.Sub(&counters); !fenced && d.Atomics() != 1 {
					t.Errorf("giving up the lock took %d atomics", d.Atomics())
				}
			})
			queued(p, g, func() {
				err := s[2].s.Lock(a[0], s[2].node)
				if err == nil {
					err = s[2].s.PostUnlock()
				}
				if fenced != (err != nil) {
					t.Errorf("fenced %v: the next session: %v", fenced, err)
				}
			})
			must(t, s[0].change(a[0], true))
			if fenced {
				must(t, c.Control(p).Fence(1, []uint32{cl.Client()}, lease))
			}
			unlock.Set()
			g.Wait(env.Forever)
		})
	}
}

// TestHandedOnCounters: sessions of several clients count in nodes that share locks, under the
// adversary. Some hand their images on, some change nothing.
func TestHandedOnCounters(t *testing.T) {
	const each = 15
	for seed := range seeds {
		var counts [3]uint64
		simulate(t, seed, poolsim.Options{Servers: 1, Locks: 2}, func(c *poolsim.Cluster, p *simenv.Process) {
			mine, err := c.Open(p)
			must(t, err)
			var nodes [3]pool.Addr
			for i := range nodes {
				nodes[i], err = mine.Allocate(256, pool.Nil)
				must(t, err)
			}
			g := env.NewWaitGroup(p)
			for n := 1; n <= 2; n++ {
				client(t, c, p, g, n, func(cl *pool.Pool) error {
					inner := env.NewWaitGroup(cl.Env())
					var errs []error
					for i, s := range seats(t, cl, 4) {
						r := rand.New(rand.NewPCG(seed, uint64(8*n+i)))
						inner.Go(fmt.Sprint("session ", i), func() {
							errs = append(errs, s.count(r, &nodes, &counts, each), s.s.Close())
						})
					}
					inner.Wait(env.Forever)
					return errors.Join(errs...)
				})
			}
			g.Wait(env.Forever)
			memory := c.Memory(1, verbs.RegionData)
			for i, a := range nodes {
				if got := binary.LittleEndian.Uint64(memory[a.Offset():]); !t.Failed() && got != counts[i] {
					t.Errorf("counter %d is %d, want %d", i, got, counts[i])
				}
			}
		})
	}
}

// count changes some nodes, and looks at some.
func (s *seat) count(r *rand.Rand, nodes *[3]pool.Addr, counts *[3]uint64, times int) error {
	for range times {
		i := r.IntN(len(nodes))
		s.s.Begin()
		if err := s.s.Lock(nodes[i], s.node); err != nil {
			return err
		}
		if got := binary.LittleEndian.Uint64(s.node); got != counts[i] {
			return fmt.Errorf("under its lock counter %d is %d, want %d", i, got, counts[i])
		}
		if r.IntN(4) == 0 {
			if err := s.s.PostUnlock(); err != nil {
				return err
			}
			continue
		}
		counts[i]++
		if err := s.change(nodes[i], r.IntN(4) != 0); err != nil {
			return err
		}
	}
	return nil
}
