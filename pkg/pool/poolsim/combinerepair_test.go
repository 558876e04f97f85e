package poolsim_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestOfferIsOfOneNode: a session that offers a change of node x finds x in a bundle of a client
// that died, and waits for the lock of the bundle's main node, to have that repaired. The holder of
// that lock does not find the offer: it is not of that node, and the session would take the answer
// for a failure.
func TestOfferIsOfOneNode(t *testing.T) {
	waited := 0
	for last := 1; last <= 8; last++ {
		if offerBesideBundle(t, last) {
			waited++
		}
	}
	if waited == 0 {
		t.Error("the session has never waited for the main node")
	}
}

// offerBesideBundle is TestOfferIsOfOneNode where the client dies before that list of a bundle. It
// reports whether the session waited for the main node.
func offerBesideBundle(t *testing.T, last int) (waited bool) {
	t.Helper()
	const x, main = 0, 1
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 1_000_000})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 64, Lease: lease})
	must(t, err)
	open := func(p *simenv.Process, d *hookedDevice) *pool.Pool {
		d.Device = c.Fabric.Device(p)
		cl, err := pool.Open(pool.Config{Env: p, Control: c.Control(p), Devices: []verbs.Device{d}, Identity: poolsim.Identity})
		must(t, err)
		return cl
	}
	must(t, w.Run(func(p *simenv.Process) {
		device := &hookedDevice{}
		cl := open(p, device)
		var nodes []pool.Addr
		for range 2 {
			a, err := cl.Allocate(bundleNode, pool.Nil)
			must(t, err)
			nodes = append(nodes, a)
		}
		victim, dies := w.NewProcess("victim"), p.NewEvent()
		var id uint32
		victim.Go("main", func() {
			d := &hookedDevice{}
			cl := open(victim, d)
			id = cl.Client()
			b := newBundler(t, cl, nodes)
			b.all(main) // with room for its images
			n := 0
			d.posts = func([]verbs.Request) error {
				if n++; n == last {
					dies.Set()
					victim.Sleep(time.Hour)
				}
				return nil
			}
			b.all(main)
			dies.Set()
		})
		dies.Wait(env.Forever)
		victim.Kill()
		must(t, c.Control(p).Fence(1, []uint32{id}, time.Second))

		s, g := seats(t, cl, 2), env.NewWaitGroup(p)
		lists, offered := 0, p.NewEvent()
		device.posts = func([]verbs.Request) error {
			if lists++; lists == 2 { // the lock of main is the holder's, and repaired by and by
				queued(p, g, func() {
					var what addition
					answered, err := s[1].s.LockOr(nodes[x], s[1].node[:bundleNode], &what)
					must(t, err)
					if answered {
						t.Errorf("dead before list %d: the change of a node was made in another one", last)
						return
					}
					must(t, s[1].s.PostUnlock())
				})
				offered.Set()
			}
			return nil
		}
		must(t, s[0].s.Lock(nodes[main], s[0].node[:bundleNode]))
		if offered.Wait(0) {
			p.Sleep(100 * time.Microsecond)
			waited = s[0].s.Waited()
		}
		if n := s[0].s.Take(nodes[main]); n != 0 {
			t.Errorf("dead before list %d: the holder of the main node takes a change of another node", last)
			s[0].s.TakenChange(0).(*addition).sum = binary.LittleEndian.Uint64(s[0].node)
		}
		must(t, s[0].s.PostUnlock())
		g.Wait(env.Forever)
	}))
	return waited
}
