package poolsim_test

import (
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

// TestRetiredWaits: a retired node is not free while an operation goes on that began before, in its own client or in another one; and is when the
// last of them has ended, or its client is fenced. Sessions that are idle do not matter.
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
