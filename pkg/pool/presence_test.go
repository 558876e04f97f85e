package pool_test

import (
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestPresenceCosts: a change of a part of a node takes two round trips and no atomic, and nothing
// is allocated. To have a node to itself costs its holder one round trip more, if nobody is there.
func TestPresenceCosts(t *testing.T) {
	onProviders(t, func(t *testing.T, o pooltest.Options) {
		c := pooltest.New(t, o)
		p := c.Open(t)
		s := session(t, p)
		node, err := p.Allocate(128, pool.Nil)
		must(t, err)
		b, w := buffer(t, s, 112), pool.Word{At: node + 120, Node: node}
		change := func() {
			s.Begin()
			must(t, s.Enter(node))
			s.Read(node, b)
			must(t, s.Post())
			s.Write(pool.Shared, node+16, b[:8])
			must(t, s.PostLeave())
			s.End()
		}
		change() // claims the slot
		before := s.Counters()
		change()
		d := s.Counters().Sub(&before)
		if d.RoundTrips != 2 || d.Requests[verbs.Read] != 1 || d.Requests[verbs.Write] != 3 || d.Atomics() != 0 {
			t.Errorf("a change costs %+v", d)
		}
		if n := testing.AllocsPerRun(100, change); n != 0 && !invariants.Enabled {
			t.Errorf("a change allocates %v times", n)
		}
		s.Begin()
		_, err = s.Acquire(w)
		must(t, err)
		before = s.Counters()
		s.Write(pool.Shared, node+8, b[:8])
		must(t, s.AwaitAbsent(node))
		if n := s.Counters().RoundTrips - before.RoundTrips; n != 1 {
			t.Errorf("nobody was there, and the wait took %d round trips", n)
		}
		must(t, s.PostRelease(0, 0))
	})
}

// TestWaitForOneWhoStays: the holder's wait ends with its limit and names the client that is there,
// and one that comes later is not waited for.
func TestWaitForOneWhoStays(t *testing.T) {
	onProviders(t, func(t *testing.T, o pooltest.Options) {
		c := pooltest.New(t, o)
		p := c.Open(t)
		stays, holds := session(t, p), session(t, p)
		node, err := p.Allocate(128, pool.Nil)
		must(t, err)
		w := pool.Word{At: node + 120, Node: node}
		must(t, stays.Enter(node))
		must(t, stays.Post())
		holds.SetLimit(20 * time.Millisecond)
		holds.Begin()
		_, err = holds.Acquire(w)
		must(t, err)
		if err := holds.AwaitAbsent(node); !errors.Is(err, pool.ErrTimeout) {
			t.Errorf("the wait ends with %v", err)
		}
		must(t, holds.PostRelease(0, 0))
		must(t, stays.PostLeave())
		holds.Begin()
		_, err = holds.Acquire(w)
		must(t, err)
		must(t, holds.AwaitAbsent(node))
		must(t, holds.PostRelease(0, 0))
		must(t, p.Alive())
	})
}

// TestSessionThatEndsWhereItIs: a session that ends in a node gives its client up: it is closed
// there, or what it queues cannot be posted.
func TestSessionThatEndsWhereItIs(t *testing.T) {
	for name, ends := range map[string]func(s *pool.Session, b []byte) error{
		"closed": func(s *pool.Session, _ []byte) error { return s.Close() },
		"read of no server": func(s *pool.Session, b []byte) error {
			s.Read(pool.NewAddr(77, 4096), b)
			return s.Post()
		},
		"write to no server": func(s *pool.Session, b []byte) error {
			s.Write(pool.Shared, pool.NewAddr(77, 4096), b)
			return s.PostLeave()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := pooltest.New(t, pooltest.Options{})
			p := c.Open(t)
			s := session(t, p)
			node, err := p.Allocate(128, pool.Nil)
			must(t, err)
			must(t, s.Enter(node))
			must(t, s.Post())
			err = ends(s, buffer(t, s, 8))
			if alive := p.Alive(); alive == nil {
				t.Errorf("it ends with %v, its client is alive, and its word stays for ever", err)
			}
		})
	}
}

// TestPresenceExcludes: threads count cells of a node while another one moves the node to and fro.
func TestPresenceExcludes(t *testing.T) {
	const sessions, each, moves = 4, 300, 100
	onProviders(t, func(t *testing.T, o pooltest.Options) {
		o.Servers = 1
		c := pooltest.New(t, o)
		p := c.Open(t)
		var nodes [2]pool.Addr
		for i := range nodes {
			var err error
			nodes[i], err = p.Allocate(128, pool.Nil)
			must(t, err)
		}
		mover := session(t, p)
		b, gate := buffer(t, mover, 112), buffer(t, mover, 8)
		set := func(at pool.Addr, to uint64) {
			binary.LittleEndian.PutUint64(gate, to)
			mover.Write(pool.Shared, at+8, gate)
		}
		w := pool.Word{At: nodes[0] + 120, Node: nodes[0]}
		mover.Begin()
		_, err := mover.Acquire(w)
		must(t, err)
		set(nodes[1], 1)
		must(t, mover.PostRelease(0, 0))
		mover.End()
		var group sync.WaitGroup
		for i := range sessions {
			s := session(t, p)
			b, cell := buffer(t, s, 112), buffer(t, s, 8)
			group.Go(func() {
				for n := uint64(1); n <= each; {
					for _, node := range nodes {
						s.Begin()
						err := s.Enter(node)
						s.Read(node, b)
						if err = errors.Join(err, s.Post()); err != nil {
							t.Error(err)
							return
						}
						if open := binary.LittleEndian.Uint64(b[8:]) == 0; open {
							if got := binary.LittleEndian.Uint64(b[16+8*i:]); got != n-1 {
								t.Errorf("cell %d is %d, it was counted to %d", i, got, n-1)
							}
							binary.LittleEndian.PutUint64(cell, n)
							s.Write(pool.Shared, node+16+8*pool.Addr(i), cell)
							n++
						}
						if err := s.PostLeave(); err != nil {
							t.Error(err)
							return
						}
						s.End()
					}
				}
			})
		}
		for n := range moves {
			from, to := nodes[n%2], nodes[(n+1)%2]
			mover.Begin()
			_, err := mover.Acquire(w)
			must(t, err)
			set(from, 1)
			must(t, mover.AwaitAbsent(from))
			mover.Read(from+16, b[:8*sessions])
			must(t, mover.Post())
			mover.Write(pool.Shared, to+16, b[:8*sessions])
			set(to, 0)
			must(t, mover.PostRelease(0, 0))
			mover.End()
		}
		group.Wait()
	})
}

// TestSessionThatDiedWhereItWas: a session that died with a lock held, or in a node, says so to
// whoever uses it again.
func TestSessionThatDiedWhereItWas(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{})
	p := c.Open(t)
	locks, holds, enters := session(t, p), session(t, p), session(t, p)
	node, err := p.Allocate(128, pool.Nil)
	must(t, err)
	b, w := buffer(t, locks, 64), pool.Word{At: node + 120, Node: node}
	must(t, locks.Lock(node, b))
	_, err = holds.Acquire(w)
	must(t, err)
	must(t, enters.Enter(node))
	p.Condemn(errors.New("the test says so"))
	for _, s := range []*pool.Session{locks, holds, enters} {
		if s.Post() == nil {
			t.Fatal("a session of a client that is given up posts")
		}
		_, tried := s.TryLock(node, b)
		_, _, try := s.TryAcquire(w)
		_, acquired := s.Acquire(w)
		for _, err := range []error{s.Lock(node, b), tried, acquired, try, s.Enter(node)} {
			if err == nil {
				t.Error("a session that died acquires a lock, or enters a node")
			}
		}
	}
}

// TestSessionOfAClientThatWasGivenUp: it is refused for that reason. What its connection says,
// which was cut, tells nobody what to do.
func TestSessionOfAClientThatWasGivenUp(t *testing.T) {
	p := pooltest.New(t, pooltest.Options{}).Open(t)
	reason := errors.New("the test says so")
	p.Condemn(reason)
	s, err := p.NewSession(64)
	if err == nil {
		t.Fatal("a session was opened")
	}
	if s != nil || !errors.Is(err, pool.ErrFenced) || !errors.Is(err, reason) {
		t.Errorf("%v, %v", s, err)
	}
}
