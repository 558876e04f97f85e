package poolsim_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

const lease = 100 * time.Millisecond

// calm runs body in a world without an adversary, with leases.
func calm(t *testing.T, body func(c *poolsim.Cluster, p *simenv.Process)) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: 1})
	c, err := poolsim.New(w, poolsim.Options{Locks: 4, Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(func(p *simenv.Process) { body(c, p) }); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// victim is a client in a process of its own, which holds the lock of a node.
func victim(t *testing.T, c *poolsim.Cluster, p *simenv.Process, node pool.Addr, then func(cl *pool.Pool, s *pool.Session)) *simenv.Process {
	t.Helper()
	proc, locked := p.World().NewProcess("victim"), p.NewEvent()
	proc.Go("main", func() {
		cl, err := c.Open(proc)
		must(t, err)
		s, err := cl.NewSession(4096)
		must(t, err)
		b, err := s.Buffer(256)
		must(t, err)
		must(t, s.Lock(node, b))
		locked.Set()
		then(cl, s)
	})
	locked.Wait(env.Forever)
	return proc
}

func TestLeaseIsKept(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		cl, err := c.Open(p)
		must(t, err)
		for range 50 {
			p.Sleep(lease / 2)
			must(t, cl.Alive())
		}
		must(t, cl.Close())
	})
}

// TestKilledHolder: the lock of a client that died is another one's once the lease is over, and not
// before.
func TestKilledHolder(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		cl, err := c.Open(p)
		must(t, err)
		node, err := cl.Allocate(256, pool.Nil)
		must(t, err)
		proc := victim(t, c, p, node, func(own *pool.Pool, _ *pool.Session) { own.Env().Sleep(time.Hour) })
		proc.Kill()
		died := p.Now()
		must(t, increment(cl, node, 1))
		if waited := p.Now() - died; waited < lease/2 || waited > 2*lease {
			t.Errorf("the lock was there after %v, the lease is %v", waited, lease)
		}
	})
}

// TestFrozenHolder: who is frozen for longer than its lease finds itself fenced when it thaws,
// before anything of it takes effect.
func TestFrozenHolder(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		cl, err := c.Open(p)
		must(t, err)
		node, err := cl.Allocate(256, pool.Nil)
		must(t, err)
		done := p.NewEvent()
		proc := victim(t, c, p, node, func(own *pool.Pool, s *pool.Session) {
			own.Env().Sleep(time.Millisecond) // it is frozen meanwhile
			if err := own.Alive(); !errors.Is(err, pool.ErrFenced) {
				t.Errorf("thawed long after its lease: %v", err)
			}
			b, err := s.Buffer(256)
			must(t, err)
			s.Write(pool.Shared, node, b)
			if err := s.PostUnlock(); err == nil {
				t.Error("a fenced client wrote")
			}
			if _, err := own.NewSession(64); err == nil {
				t.Error("a fenced client made a session")
			}
			must(t, own.Close())
			done.Set()
		})
		proc.Freeze()
		must(t, increment(cl, node, 3))
		proc.Thaw()
		done.Wait(env.Forever)
		if got := binary.LittleEndian.Uint64(c.Memory(node.Server(), verbs.RegionData)[node.Offset():]); got != 3 {
			t.Errorf("the node says %d, want 3", got)
		}
	})
}

// TestLockHeldTooLong: who waits for a lock in vain, that of a session of its own client or of
// another one, is told so when its limit is over, and goes on.
func TestLockHeldTooLong(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		const limit = 50 * time.Millisecond
		open := func() (*pool.Pool, *pool.Session, []byte) {
			cl, err := c.Open(p)
			must(t, err)
			s, err := cl.NewSession(4096)
			must(t, err)
			b, err := s.Buffer(256)
			must(t, err)
			return cl, s, b
		}
		holder, held, b := open()
		node, err := holder.Allocate(256, pool.Nil)
		must(t, err)
		must(t, held.Lock(node, b))
		other, s, b := open()
		own, err := holder.NewSession(4096)
		must(t, err)
		buf, err := own.Buffer(256)
		must(t, err)
		for _, w := range []struct {
			s    *pool.Session
			b    []byte
			says string
		}{{own, buf, "another session of this client"}, {s, b, fmt.Sprintf("client %d holds", holder.Client())}} {
			w.s.SetLimit(limit)
			w.s.Begin()
			at := p.Now()
			err := w.s.Lock(node, w.b)
			if !errors.Is(err, pool.ErrTimeout) || !strings.Contains(err.Error(), w.says) || w.s.Err() != nil {
				t.Errorf("%v, want %v that says %q; the session: %v", err, pool.ErrTimeout, w.says, w.s.Err())
			}
			if waited := p.Now() - at; waited < limit || waited > limit+2*time.Millisecond {
				t.Errorf("the limit of %v was over after %v", limit, waited)
			}
		}
		must(t, held.PostUnlock())
		must(t, own.Lock(node, buf))
		must(t, own.PostUnlock())
		must(t, s.Lock(node, b))
		must(t, s.PostUnlock())
		must(t, errors.Join(holder.Alive(), other.Alive()))
	})
}

// TestClosedHolder: a client that closes with a lock in its hand need not be waited for.
func TestClosedHolder(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		cl, err := c.Open(p)
		must(t, err)
		node, err := cl.Allocate(256, pool.Nil)
		must(t, err)
		closed := p.NewEvent()
		victim(t, c, p, node, func(own *pool.Pool, s *pool.Session) {
			must(t, s.Close())
			if err := own.Alive(); !errors.Is(err, pool.ErrFenced) {
				t.Errorf("a session was closed with its lock, and the client lives: %v", err)
			}
			must(t, own.Close())
			closed.Set()
		})
		closed.Wait(env.Forever)
		at := p.Now()
		must(t, increment(cl, node, 1))
		if waited := p.Now() - at; waited > lease/10 {
			t.Errorf("the lock was there after %v", waited)
		}
		must(t, cl.Close())
		// it said that it answers nothing any more
		if err := cl.Alive(); !errors.Is(err, pool.ErrFenced) {
			t.Errorf("a client is closed, and lives: %v", err)
		}
	})
}

// TestCondemnEndsWaits: who waits for a lock of its own client, or of another one, need not wait
// for its limit.
func TestCondemnEndsWaits(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		cl, err := c.Open(p)
		must(t, err)
		node, err := cl.Allocate(256, pool.Nil)
		must(t, err)
		hold := p.NewEvent()
		victim(t, c, p, node, func(*pool.Pool, *pool.Session) { hold.Wait(env.Forever) })
		g := env.NewWaitGroup(p)
		for range 3 { // one waits for the other client, the rest for that one
			g.Go("waiter", func() {
				if err := increment(cl, node, 1); !errors.Is(err, pool.ErrFenced) {
					t.Errorf("waiter: %v", err)
				}
			})
		}
		p.Sleep(lease / 4)
		reason := errors.New("enough")
		cl.Condemn(reason)
		at := p.Now()
		g.Wait(env.Forever)
		if waited := p.Now() - at; waited > 2*time.Millisecond {
			t.Errorf("the waiters ended after %v", waited)
		}
		if err := cl.Alive(); !errors.Is(err, reason) {
			t.Errorf("why: %v", err)
		}
		must(t, cl.Close())
	})
}
