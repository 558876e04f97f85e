package poolsim

import (
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Late is the control path of a client whose renewals have no answer: on one server, or on all.
type Late struct {
	pool.Control
	p      *simenv.Process
	Server uint16 // 0 = none
	All    bool
}

// NewLate makes the control path of process p, whose renewals have answers at first.
func (c *Cluster) NewLate(p *simenv.Process) *Late { return &Late{Control: c.Control(p), p: p} }

// Renew implements pool.Control.
func (l *Late) Renew(server uint16, client uint32, e pool.Epochs, limit time.Duration) (pool.Renewal, error) {
	const step = 10 * time.Microsecond
	for waited := time.Duration(0); l.All || l.Server == server; waited += step {
		if waited >= limit {
			return pool.Renewal{}, verbs.ErrTimeout
		}
		l.p.Sleep(step)
	}
	return l.Control.Renew(server, client, e, limit)
}

// OpenWith is Open with another control path, and with renewals every so often; 0 = as Open does.
func (c *Cluster) OpenWith(p *simenv.Process, control pool.Control, renew time.Duration) (*pool.Pool, error) {
	return pool.Open(pool.Config{
		Env: p, Control: control, Devices: []verbs.Device{c.Fabric.Device(p)}, Identity: Identity, RenewEvery: renew,
	})
}

// Stop is the world of a session that is to stand still at one of the places where it lets others
// run, in builds with invariants: between two steps of an optimistic operation (op.Op.Pause).
type Stop struct {
	env.Env
	armed         bool
	skip          int
	stopped, goOn env.Event
}

// NewStop makes the world of a session in process p. The session stands still after it has passed
// skip places.
func NewStop(p *simenv.Process, skip int) *Stop {
	return &Stop{Env: p, armed: true, skip: skip, stopped: p.NewEvent(), goOn: p.NewEvent()}
}

// Await returns when the session stands still, or has ended. It reports whether it stands still.
func (s *Stop) Await() bool {
	s.stopped.Wait(env.Forever)
	return !s.armed
}

// End says that what the session was to do is over.
func (s *Stop) End() { s.stopped.Set() }

// GoOn lets the session go on.
func (s *Stop) GoOn() { s.goOn.Set() }

// Uint64 implements env.Env. Pause draws whether to let others run: it always does.
func (s *Stop) Uint64() uint64 {
	if s.armed {
		return s.Env.Uint64() &^ 15
	}
	return s.Env.Uint64()
}

// Yield implements env.Env.
func (s *Stop) Yield() {
	if !s.armed || s.skip > 0 {
		s.skip--
		s.Env.Yield()
		return
	}
	s.armed = false
	s.stopped.Set()
	s.goOn.Wait(env.Forever)
}
