package sim

import (
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Device makes the client's half of a process: its NIC. When the process is killed, nothing is
// posted any more.
func (f *Fabric) Device(p *simenv.Process) verbs.Device {
	d := &device{fabric: f, process: p}
	if f.enemy != nil {
		d.doom = f.enemy.doomOf(p.Name())
	}
	f.clients = append(f.clients, d)
	p.AtKill(d.die)
	return d
}

type device struct {
	fabric  *Fabric
	process *simenv.Process
	doom    *doom // of its process; nil = there is no adversary
	nic     nic
	conns   []*conn
}

func (d *device) Provider() string { return "sim" }
func (d *device) Close() error     { return nil }

// NewArena implements verbs.Device. The memory is Go's: no NIC reads it behind Go's back.
func (d *device) NewArena(size int) (*verbs.Arena, error) {
	if size <= 0 {
		return nil, fmt.Errorf("arena of %d bytes: the size must be positive", size)
	}
	return verbs.NewArena(make([]byte, size), func([]byte) error { return nil }), nil
}

// Connect implements verbs.Device.
func (d *device) Connect(t verbs.Target, limit time.Duration) (verbs.Conn, error) {
	c, err := d.connect(t, limit)
	if err != nil {
		return nil, fmt.Errorf("sim: connect to %s: %w", t.Address, err)
	}
	return c, nil
}

func (d *device) connect(t verbs.Target, limit time.Duration) (*conn, error) {
	f := d.fabric
	d.process.Sleep(f.model.BaseRTT)
	if err := f.unanswered(d.process, t.Address, limit); err != nil {
		return nil, err
	}
	s := f.servers[t.Address]
	switch {
	case d.process.Dead():
		return nil, verbs.ErrClosed
	case s == nil:
		return nil, verbs.ErrDisconnected
	case len(s.conns) >= s.o.MaxConns:
		return nil, verbs.ErrTooMany
	}
	if s.door == nil {
		return d.admitted(s, t)
	}
	var c *conn
	var err error
	if e := s.door.call(d.process, limit, func() {
		s.door.admitting.Lock()
		defer s.door.admitting.Unlock()
		c, err = d.admitted(s, t)
	}); e != nil {
		return nil, e
	}
	d.process.Sleep(f.model.BaseRTT / 2)
	return c, err
}

// admitted makes a connection for whom the server's admission lets in. What waits in it waits
// within Admit.
func (d *device) admitted(s *Server, t verbs.Target) (*conn, error) {
	f := d.fabric
	peer, err := s.o.Admission.Admit(t.Token)
	if err != nil {
		return nil, err
	}
	if t.Incarnation != 0 && t.Incarnation != s.o.Incarnation {
		return nil, fmt.Errorf("incarnation %#x, expected %#x: %w", s.o.Incarnation, t.Incarnation, verbs.ErrLostMemory)
	}
	// Requests that broken connections of this client left under way are dropped before it has its
	// answer (G3). A connection that the server cut has nothing left.
	for _, old := range append([]*conn(nil), s.conns...) {
		switch {
		case old.peer != peer:
		case old.err != nil:
			old.drop(old.err)
		default:
			old.quiet()
		}
	}
	c := &conn{device: d, server: s, peer: peer, caps: f.caps, incarnation: s.o.Incarnation}
	if s.o.Reach != nil {
		c.reach = s.o.Reach(peer)
	}
	c.caps.Calls = (f.caps.Calls || f.enemy == nil) && s.o.Executor != nil
	s.conns = append(s.conns, c)
	d.conns = append(d.conns, c)
	if s.door == nil {
		d.process.Sleep(f.model.BaseRTT / 2)
	}
	return c, nil
}

// die is what the death of the process does: no queue pair starts anything any more, and what is
// under way is left to the adversary.
func (d *device) die() {
	for _, c := range append([]*conn(nil), d.conns...) {
		c.err = fmt.Errorf("sim: process %s was killed: %w", d.process.Name(), verbs.ErrClosed)
		c.lost = true
		for _, q := range c.qps {
			q.abandon(c.err)
		}
	}
}

// conn is a verbs.Conn.
type conn struct {
	device      *device
	server      *Server
	peer        verbs.Peer
	reach       *verbs.Reach
	caps        verbs.Capabilities
	incarnation uint64
	err         error // not nil once it has ended for the client
	lost        bool  // without a word to the server, which ends it later
	qps         []*qp
	left        []*flight     // of ended queue pairs, and perhaps not through
	stranded    bool          // the server failed over, and the client does not know; see Mirror
	hears       time.Duration // world's time, of that
}

func (c *conn) Capabilities() verbs.Capabilities { return c.caps }
func (c *conn) Regions() []verbs.Region          { return c.server.list() }
func (c *conn) Incarnation() uint64              { return c.incarnation }

// NewQP implements verbs.Conn.
func (c *conn) NewQP(a *verbs.Arena) (verbs.QP, error) {
	switch {
	case c.err != nil:
		return nil, c.err
	case c.device.process.Dead():
		return nil, verbs.ErrClosed
	case len(c.qps) >= MaxQPs:
		return nil, fmt.Errorf("sim: connection has %d queue pairs already: %w", len(c.qps), verbs.ErrTooMany)
	}
	q := newQP(c, a)
	c.qps = append(c.qps, q)
	return q, nil
}

// Close implements verbs.Conn. It cannot take back what a lost connection has under way.
func (c *conn) Close() error {
	if c.lost {
		return c.err
	}
	c.drop(fmt.Errorf("sim: connection: %w", verbs.ErrClosed))
	return nil
}

// cut ends the connection from the server's side.
func (c *conn) cut() {
	c.drop(fmt.Errorf("sim: connection to %s: %w", c.server.address, verbs.ErrDisconnected))
}

// drop ends the connection on both sides: nothing of it takes effect any more.
func (c *conn) drop(reason error) {
	if c.err == nil {
		c.err = reason
	}
	for _, q := range c.qps {
		q.end(c.err)
	}
	c.quiet()
	c.qps = nil
	remove(&c.server.conns, c)
	remove(&c.device.conns, c)
}

// quiet stops what queue pairs that have ended left under way.
func (c *conn) quiet() {
	for _, f := range c.left {
		f.stop()
	}
	c.left = nil
}

// lose ends the connection for the client only: what is under way is left to the adversary.
func (c *conn) lose() {
	if c.err == nil {
		c.lost = true
		c.err = fmt.Errorf("sim: connection to %s is lost: %w", c.server.address, verbs.ErrDisconnected)
	}
	for _, q := range c.qps {
		q.abandon(c.err)
	}
}

// leave remembers a flight that nobody waits for any more.
func (c *conn) leave(f *flight) {
	if f.left > 0 && !f.stopped {
		c.left = append(c.left, f)
	}
}

// remove takes x out of list.
func remove[T comparable](list *[]T, x T) {
	for i, y := range *list {
		if y == x {
			*list = append((*list)[:i], (*list)[i+1:]...)
			return
		}
	}
}
