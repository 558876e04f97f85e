package poolsim_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// lock is Lock or LockOwn.
func (s *seat) lock(a pool.Addr, own bool) error {
	if !own {
		return s.s.Lock(a, s.node)
	}
	_, err := s.s.LockOwn(a, s.node, nil)
	return err
}

// TestOwnTakesItsTurn: sessions that want a lock and its place alone stand in one queue. The place
// costs no atomic, comes with the image of the node, and is not the lock.
func TestOwnTakesItsTurn(t *testing.T) {
	f := func(what string, first, second bool, atomics, reads uint64) {
		t.Helper()
		oneLock(t, func(_ *poolsim.Cluster, p *simenv.Process, cl *pool.Pool, a [2]pool.Addr) {
			s, g := seats(t, cl, 2), env.NewWaitGroup(p)
			must(t, s[0].lock(a[0], first))
			if s[0].s.HoldsOwn() != first || !s[0].s.Holds() {
				t.Errorf("%s: the place alone: %v, anything: %v", what, s[0].s.HoldsOwn(), s[0].s.Holds())
			}
			var order []int
			queued(p, g, func() {
				before := s[1].s.Counters()
				must(t, s[1].lock(a[0], second))
				order = append(order, 1)
				if n := binary.LittleEndian.Uint64(s[1].node); n != 1 {
					t.Errorf("%s: the node has %d changes, want 1", what, n)
				}
				must(t, s[1].change(a[0], true))
				now := s[1].s.Counters()
				if d := now.Sub(&before); d.Atomics() != atomics || s[1].reads() != reads {
					t.Errorf("%s: the second one took %d atomics and %d READs, want %d and %d", what, d.Atomics(), s[1].reads(), atomics, reads)
				}
			})
			order = append(order, 0)
			must(t, s[0].change(a[0], true))
			g.Wait(env.Forever)
			if !slices.Equal(order, []int{0, 1}) {
				t.Errorf("%s: the order is %v", what, order)
			}
		})
	}
	f("place after place", true, true, 0, 0)
	f("lock after place", true, false, 2, 1)
	f("place after lock", false, true, 1, 0) // it got the lock, and gave that up
}

// TestOwnIsNoLock: another client gets the lock meanwhile, and under the place alone nothing is
// rewritten, since nobody would find what a client that dies leaves of it.
func TestOwnIsNoLock(t *testing.T) {
	oneLock(t, func(c *poolsim.Cluster, p *simenv.Process, cl *pool.Pool, a [2]pool.Addr) {
		other, err := c.Open(p)
		must(t, err)
		s, o := seats(t, cl, 1), seats(t, other, 1)
		must(t, s[0].lock(a[0], true))
		must(t, o[0].lock(a[0], false))
		must(t, o[0].s.PostUnlock())
		defer func() {
			if recover() == nil {
				t.Error("a rewrite under the place alone is not refused")
			}
			must(t, s[0].s.PostUnlock())
		}()
		_ = s[0].s.ReserveRewrite(a[0], 256)
	})
}

// TestOwnImageIsProved: who was given an image with the place, and changes nothing, learns when its
// client was fenced, and the image is old.
func TestOwnImageIsProved(t *testing.T) {
	for _, fences := range []bool{false, true} {
		oneLock(t, func(c *poolsim.Cluster, p *simenv.Process, cl *pool.Pool, a [2]pool.Addr) {
			s, g := seats(t, cl, 2), env.NewWaitGroup(p)
			must(t, s[0].lock(a[0], true))
			unlock := p.NewEvent()
			queued(p, g, func() {
				must(t, s[1].lock(a[0], true))
				unlock.Wait(env.Forever)
				if err := s[1].s.PostUnlock(); errors.Is(err, pool.ErrFenced) != fences {
					t.Errorf("fenced %v: a session that changed nothing gives up its place: %v", fences, err)
				}
			})
			must(t, s[0].change(a[0], true))
			if fences {
				must(t, c.Control(p).Fence(1, []uint32{cl.Client()}, lease))
				p.Sleep(lease) // whoever takes the client's keys waits as long
			}
			unlock.Set()
			g.Wait(env.Forever)
		})
	}
}
