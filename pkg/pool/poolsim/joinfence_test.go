package poolsim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestFenceBesideJoin: a client that is fenced everywhere while a server joins, and that has got
// the address of a node there before it was fenced where it read it, does not get the lock of that
// node. It would if the steps stood otherwise.
func TestFenceBesideJoin(t *testing.T) {
	for _, wrong := range []joinMistake{"", noFenceThere, oldList} {
		// the client is fenced at the home before the server is a member, or after
		for _, early := range []bool{true, false} {
			if wrong == noFenceThere && !early || wrong == oldList && early {
				continue // the step that is wrong does nothing then
			}
			t.Run(fmt.Sprintf("%s, early %v", wrong, early), func(t *testing.T) {
				err := lockOnNew(t, wrong, early)
				if (err == nil) != (wrong != "") {
					t.Errorf("the fenced client asks for a lock: %v", err)
				}
			})
		}
	}
}

// lockOnNew is what becomes of the lock that the fenced client asks for.
func lockOnNew(t *testing.T, wrong joinMistake, early bool) (got error) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		open := func(renewEvery time.Duration) *pool.Pool {
			cl, err := pool.Open(pool.Config{Env: p, Control: c.Control(p), Devices: []verbs.Device{c.Fabric.Device(p)}, Identity: poolsim.Identity, RenewEvery: renewEvery})
			must(t, err)
			return cl
		}
		victim, other, fencer := open(lease/2), open(lease/50), open(lease/50) // it learns late
		s, err := victim.NewSession(4096)
		must(t, err)
		b, err := s.Buffer(256)
		must(t, err)
		added, err := c.Start()
		must(t, err)
		follow := func() {
			for {
				n, err := c.Behind(p, time.Second)
				must(t, err)
				if n == 0 {
					return
				}
				p.Sleep(time.Microsecond)
			}
		}
		must(t, c.Note(p, added, pool.Joining, time.Second))
		follow()
		var others []uint16
		list := func() {
			others, err = fencer.Others()
			must(t, err)
		}
		fence := func(id uint16) { must(t, c.Control(p).Fence(id, []uint32{victim.Client()}, time.Second)) }
		if wrong == oldList {
			list()
		}
		if early {
			fence(1)
			list()
		}
		must(t, c.Note(p, added, pool.Member, time.Second))
		follow()
		if victim.Alive() != nil {
			t.Fatal("the client knows that it is fenced: the test shows nothing")
		}
		if wrong != noFenceThere {
			must(t, c.FenceAtNew(p, added, time.Second))
		}
		must(t, c.Grant(p, added, time.Second))
		var node pool.Addr // that the victim knows of, and that lies on the new server
		for node.Server() != added {
			node, err = other.Allocate(256, pool.Nil)
			must(t, err)
		}
		if !early {
			fence(1)
			if wrong != oldList {
				list()
			}
		}
		for _, id := range others {
			fence(id)
		}
		s.Begin()
		got = s.Lock(node, b)
	})
	return got
}
