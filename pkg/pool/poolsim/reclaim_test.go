package poolsim_test

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// TestRetiredWaits: a retired node is not free while an operation goes on that began before, in its own client or in another one, and is when the last of
// them has ended, or its client is fenced. Sessions that are idle do not matter.
func TestRetiredWaits(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		owner, err := c.Open(p)
		must(t, err)
		session := func(cl *pool.Pool) *pool.Session {
			s, err := cl.NewSession(64)
			must(t, err)
			return s
		}
		own, idle := session(owner), session(owner)
		idle.Begin()
		idle.End()
		own.Begin()
		stamp := own.Stamp()

		// One other client ends its operation in time, one stands still in it.
		other, err := c.Open(p)
		must(t, err)
		theirs := session(other)
		theirs.Begin()
		proc, begun := p.World().NewProcess("stands still"), p.NewEvent()
		proc.Go("main", func() {
			cl, err := c.Open(proc)
			must(t, err)
			session(cl).Begin()
			begun.Set()
			proc.Sleep(time.Hour)
		})
		begun.Wait(env.Forever)

		node, err := owner.Allocate(256, pool.Nil)
		must(t, err)
		owner.Retire(node, 256)
		proc.Freeze()
		waits := func(what string) {
			t.Helper()
			late := session(owner)
			late.Begin()
			p.Sleep(lease / 2)
			late.End()
			must(t, late.Close())
			if owner.Reclaimed() != 0 {
				t.Fatalf("the node is free while %s", what)
			}
		}
		waits("nobody has ended anything")
		own.End()
		waits("two other clients still look")
		theirs.End() // the one that stands still is fenced in time
		for i := 0; owner.Reclaimed() == 0; i++ {
			if i == 100 {
				t.Fatal("the node is never free")
			}
			p.Sleep(lease / 10)
		}
		if !proc.Dead() && owner.Floor() <= stamp {
			t.Errorf("what was cached at %d may be followed still: the floor is %d", stamp, owner.Floor())
		}
		again, err := owner.Allocate(256, pool.Nil)
		must(t, err)
		if again != node {
			t.Errorf("the next node is %v, the free one %v", again, node)
		}
	})
}
