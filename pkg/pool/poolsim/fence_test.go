package poolsim_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestFence: a WRITE behind an atomic of the same list is seen after it only with Fence. Without it
// the adversary shows it before, so the test would find a fence that is none.
func TestFence(t *testing.T) {
	before := 0
	for seed := range uint64(40) {
		if early(t, seed, true) {
			t.Fatalf("seed %d: the WRITE behind the fence was seen first", seed)
		}
		if early(t, seed, false) {
			before++
		}
	}
	if before == 0 {
		t.Error("without a fence the WRITE was never seen first")
	}
}

// early reports whether a client saw the second of two words changed, and the first one not yet,
// which another one changes in one list: the first by an atomic.
func early(t *testing.T, seed uint64, fence bool) (found bool) {
	const rounds = 60
	w := simenv.New(simenv.Options{Seed: seed, Preempt: 6})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 4, Fabric: sim.Options{Plan: &sim.Plan{Reorder: true, Delay: 3000, Gap: 500}}})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Run(func(p *simenv.Process) {
		mine, err := c.Open(p)
		if err != nil {
			w.Fail(err)
		}
		a, err := mine.Allocate(256, pool.Nil)
		if err != nil {
			w.Fail(err)
		}
		over := false
		g := env.NewWaitGroup(p)
		client(t, c, p, g, 1, func(cl *pool.Pool) error {
			s, old, word, err := words(cl)
			for n := uint64(1); n <= rounds && err == nil; n++ {
				binary.LittleEndian.PutUint64(word, n)
				s.CompareSwap(a, n-1, n, old)
				if fence {
					s.Fence(a)
				}
				s.Write(pool.Sole, a+8, word)
				err = s.Post()
			}
			over = true
			return errors.Join(err, s.Close())
		})
		client(t, c, p, g, 2, func(cl *pool.Pool) error {
			s, first, second, err := words(cl)
			for !over && err == nil {
				s.Read(a+8, second)
				if err = s.Post(); err == nil {
					s.Read(a, first)
					err = s.Post()
				}
				found = found || binary.LittleEndian.Uint64(second) > binary.LittleEndian.Uint64(first)
			}
			return errors.Join(err, s.Close())
		})
		g.Wait(env.Forever)
	})
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	return found
}

// words are a session and two words of it.
func words(p *pool.Pool) (s *pool.Session, first, second []byte, err error) {
	if s, err = p.NewSession(256); err == nil {
		first, err = s.Buffer(8)
	}
	if err == nil {
		second, err = s.Buffer(8)
	}
	return s, first, second, err
}
