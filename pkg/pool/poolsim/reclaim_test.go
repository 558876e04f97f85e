package poolsim_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// retirer retires nodes and waits for them.
type retirer struct {
	*testing.T
	p     *simenv.Process
	owner *pool.Pool
	freed uint64 // nodes so far
}

func (r *retirer) retire() pool.Addr {
	node, err := r.owner.Allocate(256, pool.Nil)
	must(r.T, err)
	r.owner.Retire(node, 256)
	return node
}

// waits fails if the node becomes free for a long time, in which operations come and go.
func (r *retirer) waits(while string) {
	r.Helper()
	s, err := r.owner.NewSession(64)
	must(r.T, err)
	for range 50 {
		s.Begin()
		r.p.Sleep(lease / 25)
		s.End()
	}
	must(r.T, s.Close())
	if r.owner.Reclaimed() != r.freed {
		r.Fatalf("a node is free while %s", while)
	}
}

// comes fails if the node does not become free, or is not the next one to be used then.
func (r *retirer) comes(node pool.Addr) {
	r.Helper()
	r.freed++
	for i := 0; r.owner.Reclaimed() < r.freed; i++ {
		if i == 100 {
			r.Fatal("a node is never free")
		}
		r.p.Sleep(lease / 10)
	}
	again, err := r.owner.Allocate(256, pool.Nil)
	must(r.T, err)
	if again != node {
		r.Errorf("the next node is %v, the free one %v", again, node)
	}
}

// TestRetiredWaits: a retired node is not free while an operation goes on that began before, in its
// own client or in another one; and is when the last of them has ended, or its client is fenced.
// Sessions that are idle do not matter.
func TestRetiredWaits(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		open := func(p *simenv.Process) (*pool.Pool, *pool.Session) {
			cl, err := c.Open(p)
			must(t, err)
			s, err := cl.NewSession(64)
			must(t, err)
			return cl, s
		}
		owner, own := open(p)
		_, theirs := open(p)
		r := &retirer{T: t, p: p, owner: owner}
		r.comes(r.retire()) // all are idle

		own.Begin()
		stamp := own.Stamp()
		node := r.retire()
		r.waits("the owner looks at it")
		own.End()
		r.comes(node)
		if owner.Floor() <= stamp {
			t.Errorf("what was cached at %d may be followed still: the floor is %d", stamp, owner.Floor())
		}

		theirs.Begin()
		node = r.retire()
		r.waits("another client looks at it")
		theirs.End()
		r.comes(node)

		proc, begun := p.World().NewProcess("stands still"), p.NewEvent()
		proc.Go("main", func() {
			_, s := open(proc)
			s.Begin()
			begun.Set()
			proc.Sleep(time.Hour)
		})
		begun.Wait(env.Forever)
		node = r.retire()
		r.waits("a client looks at it that renews its lease")
		proc.Freeze()
		r.comes(node)
	})
}

// TestReclaimingIsSaidOnce: who found no memory before a node became free is told to try again,
// though nothing waits any more; and who knows of that is not.
func TestReclaimingIsSaidOnce(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		owner, err := c.Open(p)
		must(t, err)
		r := &retirer{T: t, p: p, owner: owner}
		said := func(what string, since uint64, want bool) {
			t.Helper()
			if got := owner.Reclaiming(since); got != want {
				t.Errorf("%s: %v", what, got)
			}
		}
		since := owner.Reclaimed()
		said("nothing was retired", since, false)
		node := r.retire()
		said("a node waits", since, true)
		r.comes(node)
		said("it is free", since, true)
		said("it was free before", owner.Reclaimed(), false)
	})
}

// deadMark is how the tests' nodes say that they are dead.
var deadMark = []byte("dead")

func isMarked(_ pool.Addr, head []byte) pool.Mark {
	if bytes.HasPrefix(head, deadMark) {
		return pool.Dead
	}
	return pool.Used
}

// TestSweepFindsTheDead: a node that somebody else marked as dead is found by its owner and used
// again, but not while somebody holds its lock.
func TestSweepFindsTheDead(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		owner, err := c.Open(p)
		must(t, err)
		owner.SetMarks(isMarked)
		node, err := owner.Allocate(256, pool.Nil)
		must(t, err)
		proc, over := p.World().NewProcess("other"), p.NewEvent()
		proc.Go("main", func() {
			other, err := c.Open(proc)
			must(t, err)
			s, err := other.NewSession(1024)
			must(t, err)
			b, err := s.Buffer(256)
			must(t, err)
			must(t, s.Lock(node, b))
			copy(b, deadMark)
			s.Write(pool.Shared, node, b)
			must(t, s.Post())
			other.Retire(node, 256)
			proc.Sleep(3 * lease)
			if owner.NodeState(node, 256) == pool.NodeAvailable {
				t.Error("the owner has the node while somebody holds its lock")
			}
			must(t, s.PostUnlock())
			over.Set()
			proc.Sleep(time.Hour)
		})
		over.Wait(env.Forever)
		for i := 0; owner.Reclaimed() == 0; i++ {
			if i == 100 {
				t.Fatal("the owner does not find the dead node")
			}
			p.Sleep(lease / 10)
		}
		if owner.NodeState(node, 256) != pool.NodeAvailable {
			t.Error("another node was reclaimed")
		}
	})
}

// TestSweepLeavesWhatIsInUse: a node that is used again looks dead until it is written. A sweep
// that goes on meanwhile leaves it alone.
func TestSweepLeavesWhatIsInUse(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		owner, err := c.Open(p)
		must(t, err)
		owner.SetMarks(isMarked)
		session := func() *pool.Session {
			s, err := owner.NewSession(512)
			must(t, err)
			return s
		}
		before, during := session(), session()
		b, err := during.Buffer(256)
		must(t, err)
		copy(b, deadMark)
		var nodes []pool.Addr
		for range 3 {
			a, err := owner.Allocate(256, pool.Nil)
			must(t, err)
			during.Write(pool.Sole, a, b)
			must(t, during.Post())
			nodes = append(nodes, a)
		}
		for _, a := range nodes {
			owner.Retire(a, 256)
		}
		for owner.Reclaimed() < 3 {
			p.Sleep(lease / 10)
		}
		// Sweeps begin again and again, as something is retired now and then; this operation holds
		// the first of them up.
		before.Begin()
		garbage, err := owner.Allocate(256, pool.Nil)
		must(t, err)
		owner.Retire(garbage, 256)
		p.Sleep(2 * lease)
		during.Begin()
		second, err := owner.Allocate(256, pool.Nil)
		must(t, err)
		before.End()
		p.Sleep(5 * lease)
		if owner.NodeState(second, 256) == pool.NodeAvailable {
			t.Error("a node that an operation under way has got was taken from it")
		}
		during.End()
	})
}
