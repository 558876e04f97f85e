package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// conform runs the conformance suite, every test in a world of its own.
func conform(t *testing.T, rounds int, seed uint64, options func(w *simenv.World) sim.Options) {
	var f *sim.Fabric // of the world that runs
	var p *simenv.Process
	verbstest.Run(t, verbstest.Harness{
		Device: func() verbs.Device { return f.Device(p) },
		Start: func(_ string, o verbs.ServerOptions) (string, verbs.Server, error) {
			s, address, err := f.NewServer(o)
			return address, s, err
		},
		World: func(t *testing.T, body func(env.Env)) {
			w := simenv.New(simenv.Options{Seed: seed, Preempt: 8})
			f = sim.New(w, options(w))
			if err := w.Run(func(main *simenv.Process) {
				p = main
				body(main)
			}); err != nil {
				t.Fatal(err)
			}
		},
		Network: func(_ testing.TB, address string) verbstest.Network { return &network{address, p} },
		Rounds:  rounds,
	})
}

// network is the fabric as a verbstest.Network: what is on its way is in the adversary's hands, if
// there is one.
type network struct {
	address string
	process *simenv.Process
}

func (n *network) Address() string                   { return n.address }
func (n *network) Hold(verbs.Conn, verbs.Token)      {}
func (n *network) Break(c verbs.Conn, _ verbs.Token) { sim.Break(c) }

// Deliver gives the adversary more time than it takes to end a list.
func (n *network) Deliver(verbs.Conn, verbs.Token) error {
	n.process.Sleep(20 * time.Millisecond)
	return nil
}

func TestConformance(t *testing.T) {
	conform(t, 2000, 1, func(*simenv.World) sim.Options {
		return sim.Options{Capabilities: verbs.Capabilities{OrderedReads: true, MaskedAtomics: true}}
	})
}

// TestConformanceUnderTheAdversary: what the suite asks for is what the contract promises, so no
// plan makes it fail.
func TestConformanceUnderTheAdversary(t *testing.T) {
	seeds := 12
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			conform(t, 60, seed, func(w *simenv.World) sim.Options {
				plan := sim.NewPlan(w.Faults(), sim.Menu{})
				t.Logf("plan %v", plan)
				return sim.Options{Plan: plan}
			})
		})
	}
}
