// Package sim is the fabric of the simulator: memory servers, NICs and the network between them in
// a world of package simenv, with every delay in virtual time and every choice from the seed.
//
// Without a [Plan] requests take effect in the order in which a well-behaved NIC serves them, and a
// [Model] says when: that is for measuring designs. With one there is an adversary, which does all
// that G1 to G3 of package verbs do not forbid (adversary.go): that is for finding faults.
package sim

import (
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// MaxQPs is how many queue pairs one connection may have.
const MaxQPs = 1024

// Options of a fabric.
type Options struct {
	Model Model // zero = Paper()
	Plan  *Plan // nil = no adversary; its WholeWrite of 0 means 8
	Flaws Flaws // of mirrored servers; for faults that are put in on purpose

	// Capabilities of every connection, if there is no plan; a plan has its own. A WholeWrite of 0
	// means an MTU. Calls there are wherever the server has an executor, unless a plan has none.
	Capabilities verbs.Capabilities
}

// mtu is the largest payload of an InfiniBand packet: what a dying client applies all or none of.
const mtu = 4096

// Fabric connects the processes and memory servers of one world.
type Fabric struct {
	world   *simenv.World
	model   Model
	caps    verbs.Capabilities
	enemy   *adversary // nil = none
	servers map[string]*Server
	clients []*device
	made    int // servers ever made

	flaws    Flaws
	stranded []*conn
}

// New makes a fabric in w.
func New(w *simenv.World, o Options) *Fabric {
	f := &Fabric{world: w, model: o.Model, flaws: o.Flaws, caps: o.Capabilities, servers: map[string]*Server{}}
	if f.model == (Model{}) {
		f.model = Paper()
	}
	if o.Plan != nil {
		plan := *o.Plan
		if plan.Capabilities.WholeWrite == 0 {
			plan.Capabilities.WholeWrite = 8
		}
		f.enemy = newAdversary(f, &plan)
		f.caps = plan.Capabilities
	}
	if f.caps.WholeWrite == 0 { // as a NIC
		f.caps.WholeWrite, f.caps.WholeAlways = mtu, true
	}
	return f
}

// World is the one the fabric is in.
func (f *Fabric) World() *simenv.World { return f.world }

// EndFaults ends the plan's faults: those that have not happened yet never will. All else of the
// plan goes on.
func (f *Fabric) EndFaults() {
	if f.enemy != nil {
		for _, d := range f.enemy.doomed {
			d.faults, d.await = nil, nil
		}
	}
}

// Capabilities are those of every connection.
func (f *Fabric) Capabilities() verbs.Capabilities { return f.caps }

// Call is a two-sided call of process p to a memory server: do runs there, on one of its few cores,
// ordered after what p's requests completed. It returns verbs.ErrDisconnected if the server is not
// there, and verbs.ErrTimeout if do would run too late; then it did not. Of a server that a process
// runs (NewServerOf), do may run after any error, or begin and never end.
func (f *Fabric) Call(p *simenv.Process, address string, limit time.Duration, do func()) error {
	if p.Dead() {
		return fmt.Errorf("sim: call to %s: %w", address, verbs.ErrClosed)
	}
	there, back := f.model.BaseRTT/2, f.model.BaseRTT/2
	if f.enemy != nil {
		there, back = there+f.enemy.delay(), back+f.enemy.delay()
	}
	p.Sleep(there)
	if err := f.unanswered(p, address, limit); err != nil {
		return fmt.Errorf("sim: call to %s: %w", address, err)
	}
	s := f.servers[address]
	if p.Dead() || s == nil {
		return fmt.Errorf("sim: call to %s: %w", address, verbs.ErrDisconnected)
	}
	wait := s.cores.take(f.world.Now(), f.model.CallCost) - f.world.Now()
	if there+wait+back > limit {
		return fmt.Errorf("sim: call to %s: %w", address, verbs.ErrTimeout)
	}
	p.Sleep(wait)
	if p.Dead() || f.servers[address] != s {
		return fmt.Errorf("sim: call to %s: %w", address, verbs.ErrDisconnected)
	}
	lives, need := s.restarts, 0
	if s.door == nil {
		do()
	} else if err := s.door.call(p, limit-there-wait-back, do); err != nil {
		return fmt.Errorf("sim: call to %s: %w", address, err)
	}
	if j := s.journal; j != nil && !j.flaws.Control {
		need = j.ledger
	}
	p.Sleep(back)
	if s.journal != nil && s.restarts != lives {
		return fmt.Errorf("sim: call to %s: it died before it answered: %w", address, verbs.ErrDisconnected)
	}
	s.journal.confirm(need)
	return nil
}
