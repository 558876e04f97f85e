package poolsim_test

import (
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
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// moving is a control path that hears of moves when a test says so.
type moving struct {
	pool.Control
	early   bool // server 2 moved before anybody asked
	turns   map[uint16]uint64
	moved   map[uint16]func(error)
	stopped int
}

func (m *moving) Connect(server uint16, client uint32, limit time.Duration) (pool.Grant, error) {
	g, err := m.Control.Connect(server, client, limit)
	g.Turn = 10 + uint64(server)
	return g, err
}

func (m *moving) Follow(server uint16, turn uint64, moved func(error)) (stop func()) {
	m.turns[server], m.moved[server] = turn, moved
	if m.early && server == 2 {
		moved(errMoved)
	}
	return func() {
		m.stopped++
		delete(m.moved, server)
	}
}

var errMoved = errors.New("it is elsewhere")

// TestMovedServerEndsTheClient: a client whose server moved is given up, and its waits end, long
// before its lease is over; so is one whose server moved while it was opened.
func TestMovedServerEndsTheClient(t *testing.T) {
	for _, early := range []bool{false, true} {
		inLimbo(t, poolsim.Options{Lease: lease}, func(c *poolsim.Cluster, p *simenv.Process) {
			m := &moving{Control: c.Control(p), early: early, turns: map[uint16]uint64{}, moved: map[uint16]func(error){}}
			cl, err := c.OpenWith(p, m, 0)
			must(t, err)
			if m.turns[1] != 11 || m.turns[2] != 12 || len(m.turns) != 2 {
				t.Errorf("followed are %v", m.turns)
			}
			if !early {
				s := seats(t, cl, 1)[0]
				must(t, cl.Alive())
				m.moved[2](errMoved)
				s.s.Read(pool.NewAddr(1, 1<<20), s.node)
				if err := s.s.Post(); !errors.Is(err, pool.ErrFenced) {
					t.Errorf("a session goes on: %v", err)
				}
			}
			if err := cl.Alive(); !errors.Is(err, pool.ErrFenced) || !errors.Is(err, errMoved) {
				t.Errorf("alive: %v", err)
			}
			must(t, cl.Close())
			if m.stopped != 2 {
				t.Errorf("%d of 2 servers are not followed any more", m.stopped)
			}
		})
	}
}

// silentDevice makes connections whose farewells nobody answers.
type silentDevice struct {
	verbs.Device
	p *simenv.Process
}

type silentConn struct {
	verbs.Conn
	closing env.Mutex
	closed  bool // under closing
	cut     env.Event
}

const farewellLimit = 5 * time.Second

func (d silentDevice) Connect(t verbs.Target, limit time.Duration) (verbs.Conn, error) {
	c, err := d.Device.Connect(t, limit)
	if err != nil {
		return nil, err
	}
	return &silentConn{Conn: c, closing: d.p.NewMutex(), cut: d.p.NewEvent()}, nil
}

func (c *silentConn) Cut(error) { c.cut.Set() }

func (c *silentConn) Close() error {
	c.closing.Lock()
	defer c.closing.Unlock()
	if !c.closed {
		c.cut.Wait(farewellLimit)
	}
	c.closed = true
	return c.Conn.Close()
}

// TestMoveEndsFarewells: both servers of a client were on a node that is lost. It is given up for
// the first one that moved, and closing it does not wait for a farewell of the second one longer
// than until that move is heard.
func TestMoveEndsFarewells(t *testing.T) {
	inLimbo(t, poolsim.Options{Lease: 10 * farewellLimit}, func(c *poolsim.Cluster, p *simenv.Process) {
		m := &moving{Control: c.Control(p), turns: map[uint16]uint64{}, moved: map[uint16]func(error){}}
		cl, err := pool.Open(pool.Config{Env: p, Control: m, Devices: []verbs.Device{silentDevice{c.Fabric.Device(p), p}}, Identity: poolsim.Identity})
		must(t, err)
		m.moved[1](errMoved)
		begun, closed := p.Now(), p.NewEvent()
		p.Go("close", func() {
			must(t, cl.Close())
			closed.Set()
		})
		if closed.Wait(farewellLimit / 10) {
			t.Error("it did not wait for the farewell")
		}
		if m.moved[2] == nil {
			t.Fatal("server 2 is not followed any more")
		}
		m.moved[2](errMoved)
		if closed.Wait(2 * farewellLimit); p.Now()-begun > farewellLimit/2 {
			t.Errorf("closing took %v", p.Now()-begun)
		}
	})
}

// otherMemory is a device that finds another memory at every server than was granted.
type otherMemory struct{ verbs.Device }

func (otherMemory) Connect(verbs.Target, time.Duration) (verbs.Conn, error) {
	return nil, fmt.Errorf("incarnation 2: %w", verbs.ErrLostMemory)
}

// TestFabricKnowsNoLosses: a server that admitted the client had its memory. So where the fabric
// finds another one there, another process has taken its place. Whether the memory is lost
// is for its control path to say.
func TestFabricKnowsNoLosses(t *testing.T) {
	inLimbo(t, poolsim.Options{}, func(c *poolsim.Cluster, p *simenv.Process) {
		_, err := pool.Open(pool.Config{Env: p, Control: c.Control(p), Devices: []verbs.Device{otherMemory{c.Fabric.Device(p)}}, Identity: poolsim.Identity})
		if err == nil || errors.Is(err, verbs.ErrLostMemory) || !errors.Is(err, verbs.ErrDisconnected) || !strings.Contains(err.Error(), "incarnation 2") {
			t.Errorf("opened with %v", err)
		}
	})
}

// TestMoveThatIsNotHeardOf: the server of a lock fails over, and its holder hears of it after three
// leases. Until then it goes on at another server, where what it sends under the lock takes effect.
// The next holder has the lock meanwhile. It finds the node as it was answered, nothing of the
// earlier holder reaches the node any more, and none of its changes that were cut is acknowledged.
func TestMoveThatIsNotHeardOf(t *testing.T) {
	late, elsewhere := 0, 0
	for part := 20; part < 44; part++ {
		for seed := range uint64(2) {
			plan := &sim.Plan{Tear: 2, Delay: 1000, Gap: 1000, Faults: []sim.Fault{{Kind: sim.FailOver, Process: "holder", Part: part, At: sim.Through, For: 3 * lease}}}
			w := simenv.New(simenv.Options{Seed: seed, MaxEvents: 1_000_000})
			c, err := poolsim.New(w, poolsim.Options{Locks: 4, Lease: lease, Fabric: sim.Options{Plan: plan}})
			must(t, err)
			must(t, w.Run(func(p *simenv.Process) {
				l, e := notHeardOf(t, c, p, fmt.Sprintf("part %d, seed %d", part, seed))
				late, elsewhere = late+l, elsewhere+e
			}))
		}
	}
	if late == 0 || elsewhere == 0 {
		t.Errorf("%d holders were late, and %d changed something elsewhere", late, elsewhere)
	}
}

func notHeardOf(t *testing.T, c *poolsim.Cluster, p *simenv.Process, name string) (late, elsewhere int) {
	t.Helper()
	cl, err := c.Open(p)
	must(t, err)
	var nodes [2]pool.Addr // one on each server
	for nodes[0] == 0 || nodes[1] == 0 {
		a, err := cl.Allocate(256, pool.Nil)
		must(t, err)
		nodes[a.Server()-1] = a
	}
	must(t, cl.Close())
	own, locked, acked, ended, over := nodes[1], nodes[0], byte(0), time.Duration(0), p.NewEvent()
	holder := p.World().NewProcess("holder")
	holder.Go("main", func() {
		defer func() { ended = 1 + holder.Now(); over.Set() }()
		cl, err := c.Open(holder)
		if err != nil {
			return
		}
		s := seats(t, cl, 1)[0]
		for v := byte(1); err == nil && v < 40; v++ {
			if err = s.s.Lock(locked, s.node); err != nil {
				break
			}
			s.node[0] = v
			s.s.Write(pool.Sole, own, s.node[:8]) // under the lock, on the other server
			if err = s.s.Post(); err != nil {
				break
			}
			s.s.Write(pool.Shared, locked, s.node[:8])
			if err = s.s.PostUnlock(); err == nil {
				acked = v
			}
		}
	})
	for c.Server(1).Restarts() == 0 && !over.Wait(time.Microsecond) {
	}
	if c.Server(1).Restarts() == 0 {
		return 0, 0
	}
	known, opened := acked, p.Now()
	cl, err = c.Open(p)
	must(t, err)
	s := seats(t, cl, 1)[0]
	for err = s.s.Lock(locked, s.node); errors.Is(err, pool.ErrTimeout); err = s.s.Lock(locked, s.node) {
		s.s.Begin()
	}
	must(t, err)
	if took := p.Now() - opened; took > lease/2 {
		t.Errorf("%s: the next holder waited %v for the lock, and a lease is %v", name, took, lease)
	}
	if got := s.node[0]; got != known && got != known+1 {
		t.Errorf("%s: the next holder finds %d, and %d was answered", name, got, known)
	}
	s.node[0] = 99
	s.s.Write(pool.Shared, locked, s.node[:8])
	must(t, s.s.PostUnlock())
	if ended == 0 {
		over.Wait(env.Forever)
	}
	if acked > known+1 {
		t.Errorf("%s: %d was acknowledged, %d when the server failed over", name, acked, known)
	}
	if ended > opened+lease/4 {
		late = 1
	}
	s.s.Begin()
	s.s.Read(locked, s.node)
	must(t, s.s.Post())
	if s.node[0] != 99 {
		t.Errorf("%s: the node has %d of the earlier holder", name, s.node[0])
	}
	s.s.Read(own, s.node)
	must(t, s.s.Post())
	if s.node[0] > known {
		elsewhere = 1
	}
	return late, elsewhere
}
