package poolsim_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

var deadNode = []byte("dead")

func markDead(b []byte, _ pool.Addr) int { return copy(b, deadNode) }

func isMarkedDead(_ pool.Addr, head []byte) pool.Mark {
	if bytes.HasPrefix(head, deadNode) {
		return pool.Over
	}
	return pool.Used
}

func goOn() error { return nil }

// openMarked opens a client whose nodes of size bytes are told dead by isMarkedDead, and what makes
// the content of one.
func openMarked(t *testing.T, c *poolsim.Cluster, p *simenv.Process, size int) (cl *pool.Pool, s *pool.Session, write func(a pool.Addr, text []byte)) {
	t.Helper()
	cl, err := c.Open(p)
	must(t, err)
	cl.SetMarks(isMarkedDead)
	s, err = cl.NewSession(2 * size)
	must(t, err)
	b, err := s.Buffer(size)
	must(t, err)
	return cl, s, func(a pool.Addr, text []byte) {
		clear(b)
		copy(b, text)
		s.Begin()
		s.Write(pool.Sole, a, b)
		must(t, s.Post())
		s.End()
	}
}

// TestReview: a review gives back what was in use when it began, and was not seen, retired, freed,
// handed out again or marked since.
func TestReview(t *testing.T) {
	const size = 1024
	w := simenv.New(simenv.Options{Seed: 1})
	c, err := poolsim.New(w, poolsim.Options{Servers: 2, RenewEvery: time.Millisecond})
	must(t, err)
	must(t, w.Run(func(p *simenv.Process) {
		cl, s, write := openMarked(t, c, p, size)
		var nodes []pool.Addr
		made := func() pool.Addr {
			a, err := cl.AllocateBlock(size, pool.Nil)
			must(t, err)
			write(a, []byte("alive"))
			nodes = append(nodes, a)
			return a
		}
		seen, retired, freed, marked, lost := made(), made(), made(), made(), made()
		r := cl.BeginReview()
		if n := r.Left(); n != 5 {
			t.Fatalf("%d nodes are suspects, want 5", n)
		}
		later := made()
		r.Seen([]pool.Addr{seen, seen + 64, pool.NewAddr(9, 64)})
		cl.Retire(retired, size)
		cl.Free(freed, size)
		again := made()
		for again != freed {
			again = made()
		}
		write(marked, deadNode) // by another client
		if n := r.Left(); n != 2 {
			t.Fatalf("%d nodes are suspects, want 2", n)
		}
		must(t, cl.AwaitOperations(time.Second, goOn))
		n, err := r.GiveBack(markDead)
		must(t, err)
		if n != 1 {
			t.Errorf("%d nodes are given back, want 1", n)
		}
		for _, x := range []struct {
			what string
			at   pool.Addr
			want pool.NodeState
		}{{"seen", seen, pool.NodeInUse}, {"handed out again", freed, pool.NodeInUse}, {"handed out later", later, pool.NodeInUse}, {"lost", lost, pool.NodeAvailable}} {
			if got := cl.NodeState(x.at, size); got != x.want {
				t.Errorf("the node that was %s is in state %d, want %d", x.what, got, x.want)
			}
		}
		if head := c.Memory(lost.Server(), 0)[lost.Offset():][:pool.HeadBytes]; isMarkedDead(lost, head) != pool.Over {
			t.Errorf("the node that is given back is not marked: % x", head)
		}
		must(t, s.Close())
		must(t, cl.Close())
	}))
}

// TestAwaitOperations: the operation of another client is waited for, also one of a client that is
// fenced on one server, and not yet on another one.
func TestAwaitOperations(t *testing.T) {
	w := simenv.New(simenv.Options{Seed: 2})
	c, err := poolsim.New(w, poolsim.Options{Servers: 2, RenewEvery: time.Millisecond})
	must(t, err)
	must(t, w.Run(func(p *simenv.Process) {
		cl, err := c.Open(p)
		must(t, err)
		other, began := w.NewProcess("other"), p.NewEvent()
		var id uint32
		var ended time.Duration
		other.Go("main", func() {
			pl, err := c.Open(other)
			must(t, err)
			id = pl.Client()
			s, err := pl.NewSession(64)
			must(t, err)
			s.Begin()
			began.Set()
			other.Sleep(100 * time.Millisecond)
			ended = w.Now()
			s.End()
			other.Sleep(100 * time.Millisecond)
			s.Begin()
			began.Set()
			other.Sleep(time.Hour)
		})
		began.Wait(env.Forever)
		must(t, cl.AwaitOperations(time.Second, goOn))
		if ended == 0 {
			t.Error("an operation that is under way is not waited for")
		}
		stop := errors.New("stop")
		began.Wait(env.Forever)
		if err := cl.AwaitOperations(time.Second, func() error { return stop }); err != stop {
			t.Errorf("a wait that is stopped ends with %v", err)
		}
		must(t, c.Control(p).Fence(1, []uint32{id}, time.Second))
		if err := cl.AwaitOperations(300*time.Millisecond, goOn); !errors.Is(err, pool.ErrTimeout) {
			t.Errorf("a client that is fenced on one of two servers is not waited for: %v", err)
		}
		must(t, c.Control(p).Fence(2, []uint32{id}, time.Second))
		must(t, cl.AwaitOperations(time.Second, goOn))
		must(t, cl.Close())
	}))
}

// TestReviewBesideASweep: a suspect that somebody marked may be retired by a sweep while the review
// gives back others, and be handed out again. Then the review leaves it alone.
func TestReviewBesideASweep(t *testing.T) {
	const size, nodes = 1024, 600
	w := simenv.New(simenv.Options{Seed: 3})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, RenewEvery: time.Millisecond})
	must(t, err)
	must(t, w.Run(func(p *simenv.Process) {
		cl, s, write := openMarked(t, c, p, size)
		var again pool.Addr // the last one in the order of the review
		for range nodes {
			a, err := cl.AllocateBlock(size, pool.Nil)
			must(t, err)
			write(a, []byte("alive"))
			again = max(again, a)
		}
		r := cl.BeginReview()
		write(again, deadNode) // by another client
		inUse, calls, got := false, 0, uint64(0)
		n, err := r.GiveBack(func(b []byte, a pool.Addr) int {
			if calls++; calls == 1 {
				cl.Retire(pool.NewAddr(1, 64), size) // no node: epochs grow, and a sweep begins
			}
			p.Sleep(100 * time.Microsecond) // the list takes its time
			// another session is handed out what is free
			for ; !inUse && cl.Reclaimed() > got; got++ {
				node, err := cl.AllocateBlock(size, pool.Nil)
				must(t, err)
				write(node, []byte("alive"))
				inUse = node == again
			}
			return markDead(b, a)
		})
		must(t, err)
		if !inUse {
			t.Fatalf("the node is not used again while %d others are given back: this tests nothing", n)
		}
		if got := cl.NodeState(again, size); got != pool.NodeInUse || !bytes.HasPrefix(c.Memory(1, 0)[again.Offset():], []byte("alive")) {
			t.Errorf("a node that is in use again is given back: state %d", got)
		}
		must(t, s.Close())
		must(t, cl.Close())
	}))
}
