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
	only  uint16 // the server that does; 0 = each
	late  time.Duration
	calls int
}

func (k *slowControl) AllocateChunk(server uint16, client uint32, nodeBytes int, adopt bool, limit time.Duration) (uint64, error) {
	k.calls++
	if k.only != 0 && k.only != server {
		return k.Control.AllocateChunk(server, client, nodeBytes, adopt, limit)
	}
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

// TestAllocationWaitsForItsOwnServer: while a session waits for memory of a server that stands
// still, another one gets memory of another server, node and place for an image, within the time of
// its own calls. One more that has to wait for the first server ends with its limit.
func TestAllocationWaitsForItsOwnServer(t *testing.T) {
	const limit, late = 50 * time.Millisecond, 3 * time.Second
	w := simenv.New(simenv.Options{Seed: 5})
	c, err := poolsim.New(w, poolsim.Options{Servers: 2, Chunks: 2, ChunkBytes: 64 << 10, Fabric: sim.Options{Capabilities: verbs.Capabilities{WholeWrite: 8}}})
	must(t, err)
	must(t, w.Run(func(p *simenv.Process) {
		control := &slowControl{Control: c.Control(p), p: p, only: 2, late: late}
		cl, err := pool.Open(pool.Config{Env: p, Control: control, Devices: []verbs.Device{c.Fabric.Device(p)}, Identity: poolsim.Identity})
		must(t, err)
		session := func() (*pool.Session, []byte) {
			s, err := cl.NewSession(4096)
			must(t, err)
			b, err := s.Buffer(1024)
			must(t, err)
			s.SetLimit(limit)
			s.Begin()
			return s, b
		}
		g := env.NewWaitGroup(p)
		for range 2 {
			s, _ := session()
			g.Go("of the server that stands still", func() {
				if _, err := s.Allocate(1024, pool.NewAddr(2, 1<<15)); !errors.Is(err, pool.ErrTimeout) {
					t.Errorf("memory of a server that stands still: %v", err)
				}
				must(t, s.Close())
			})
		}
		p.Sleep(limit / 10) // they wait
		s, b := session()
		began := p.Now()
		node, err := s.Allocate(1024, pool.NewAddr(1, 1<<15))
		if err != nil || node.Server() != 1 {
			t.Errorf("memory of another server: %v, %v", node, err)
		}
		must(t, s.Lock(node, b))
		if err := s.ReserveRewrite(node, 1024); err != nil {
			t.Errorf("a place for an image on another server: %v", err)
		}
		if took := p.Now() - began; took > limit/10 {
			t.Errorf("memory of another server took %v", took)
		}
		must(t, errors.Join(s.PostUnlock(), s.Close()))
		g.Wait(env.Forever)
		p.Sleep(10 * late)
		must(t, cl.Close())
	}))
}
