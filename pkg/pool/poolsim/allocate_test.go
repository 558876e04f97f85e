package poolsim_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// slowControl answers each call for a chunk late, as a memory server that stands still does.
type slowControl struct {
	pool.Control
	p     *simenv.Process
	late  time.Duration
	calls int
}

func (k *slowControl) AllocateChunk(server uint16, client uint32, nodeBytes int, adopt bool, limit time.Duration) (uint64, error) {
	k.calls++
	if k.late > limit {
		k.p.Sleep(limit)
		return 0, verbs.ErrTimeout
	}
	k.p.Sleep(k.late)
	return k.Control.AllocateChunk(server, client, nodeBytes, adopt, limit)
}

// TestAllocationKeepsLimit: operations that need memory while a memory server does not answer end
// with their limit, with whatever lock they hold; so does one that waits for the same call, and
// what it brings in the end is not lost.
func TestAllocationKeepsLimit(t *testing.T) {
	const limit, late, slack = 50 * time.Millisecond, 3 * time.Second, time.Millisecond
	w := simenv.New(simenv.Options{Seed: 5})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Chunks: 2, ChunkBytes: 64 << 10, Fabric: sim.Options{Capabilities: verbs.Capabilities{WholeWrite: 8}}})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Run(func(p *simenv.Process) {
		control := &slowControl{Control: c.Control(p), p: p, late: late}
		cl, err := pool.Open(pool.Config{Env: p, Control: control, Devices: []verbs.Device{c.Fabric.Device(p)}, Identity: poolsim.Identity})
		if err != nil {
			w.Fail(err)
			return
		}
		node := pool.NewAddr(1, 1<<15)
		g := env.NewWaitGroup(p)
		for i, allocate := range []func(s *pool.Session) error{
			func(s *pool.Session) error { _, err := s.Allocate(1024, node); return err },
			func(s *pool.Session) error { _, err := s.AllocateBlock(1024, node); return err },
			func(s *pool.Session) error { return s.ReserveRewrite(node+2*1024, 1024) },
		} {
			node := node + pool.Addr(1024*i) // with a lock of its own
			g.Go("operation", func() {
				s, err := cl.NewSession(4096)
				if err != nil {
					w.Fail(err)
					return
				}
				b, err := s.Buffer(1024)
				if err != nil {
					w.Fail(err)
					return
				}
				s.SetLimit(limit)
				s.Begin()
				if err := s.Lock(node, b); err != nil {
					w.Fail(err)
					return
				}
				began := p.Now()
				err = allocate(s)
				if took := p.Now() - began; !errors.Is(err, pool.ErrTimeout) || took > limit+slack {
					t.Errorf("operation %d: %v after %v, its limit is %v", i, err, took, limit)
				}
				s.SetLimit(pool.DefaultLimit)
				if err := errors.Join(s.PostUnlock(), s.Close()); err != nil {
					w.Fail(err)
				}
			})
		}
		g.Wait(env.Forever)
		p.Sleep(10 * late)
		calls := control.calls
		if a, err := cl.Allocate(1024, pool.Nil); err != nil || a == pool.Nil || control.calls != calls {
			t.Errorf("what the first operation waited for in vain: %v, %v, after %d more calls", a, err, control.calls-calls)
		}
		if err := cl.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
