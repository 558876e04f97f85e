package ownership

import (
	"log/slog"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/partition"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// answered is a client whose releases are answered as scripted.
type answered struct {
	holder
	answers []error
	takes   int
}

func (x *answered) Take(pool.Holding) error { x.takes++; return nil }

func (x *answered) Release(_, _ []byte, _ uint64) (err error) {
	err, x.answers = x.answers[0], x.answers[1:]
	return err
}

// TestReleaseThatMayComeLate: keys that the home does not take back are served again, unless an
// earlier release of them had no answer: that one may still arrive at the home, which would give
// keys away that are served. Then the release is repeated, however often, and the client is not
// given up.
func TestReleaseThatMayComeLate(t *testing.T) {
	refused, lost := pool.ErrHoldings, verbs.ErrTimeout
	many := []error{lost}
	for range 3 * holdTries {
		many = append(many, refused)
	}
	for _, c := range []struct {
		answers []error
		takes   int
		served  bool
		held    int
	}{
		{[]error{refused}, 1, true, 1},
		{[]error{nil}, 0, false, 0},
		{[]error{lost}, 0, false, 1},
		{[]error{lost, refused}, 0, false, 1},
		{[]error{lost, refused, lost, refused}, 0, false, 1},
		{many, 0, false, 1},
		{[]error{lost, refused, nil}, 0, false, 0},
	} {
		world := simenv.New(simenv.Options{Seed: 1})
		err := world.Run(func(p *simenv.Process) {
			x, v, tables := &answered{answers: c.answers}, NewView(p, 1, false), NewTables(p)
			h := NewManager(x, Options{
				Env: p, View: v, Tables: tables, Limit: time.Second, TakeOvers: NewTakeOvers(p), Log: slog.New(slog.DiscardHandler),
				GiveUp: func(_ Opened, why error) { t.Errorf("%v: the client is given up: %v", c.answers, why) },
			})
			v.Apply(&partition.Map{Generation: 1, Index: "uid", Servers: []partition.Server{{ID: 2}}, Ranges: []partition.Range{{Owner: 2, Epoch: 2}}})
			h.mu.Lock()
			h.held = []heldRange{{Holding: pool.Holding{Epoch: 1}, state: RangeReleasing}}
			for range c.answers {
				h.step(0)
			}
			held := len(h.held)
			h.mu.Unlock()
			if _, served := tables.Current().Serves(x, []byte("k"), false); served != c.served || x.takes != c.takes || held != c.held {
				t.Errorf("%v: served %v, taken again %d times, %d held", c.answers, served, x.takes, held)
			}
			h.End(false)
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// replaying is a client whose Take goes on until the client is given up.
type replaying struct {
	holder
	under, condemned env.Event
	took             bool
	taking           bool
	alive            error
}

func (x *replaying) Alive() error { return x.alive }

func (x *replaying) Condemn(reason error) {
	x.alive = reason
	x.condemned.Set()
}

func (x *replaying) Take(pool.Holding) error {
	x.taking = true
	x.under.Set()
	x.condemned.Wait(env.Forever)
	x.taking, x.took = false, true
	return x.alive
}

// TestEndDuringTake: a range manager that is ended while a range is taken, which may last for
// minutes, gives the client up, so that its index is not closed beside the Take.
func TestEndDuringTake(t *testing.T) {
	err := simenv.New(simenv.Options{Seed: 1}).Run(func(p *simenv.Process) {
		x, v, tables := &replaying{under: p.NewEvent(), condemned: p.NewEvent()}, NewView(p, 1, false), NewTables(p)
		h := NewManager(x, Options{
			Env: p, View: v, Tables: tables, Limit: time.Second, TakeOvers: NewTakeOvers(p), Log: slog.New(slog.DiscardHandler),
			GiveUp: func(Opened, error) {},
		})
		v.Apply(&partition.Map{Generation: 1, Index: "uid", Servers: []partition.Server{{ID: 1}}, Ranges: []partition.Range{{Owner: 1, Epoch: 1}}})
		h.known = 1
		h.held = []heldRange{{Holding: pool.Holding{Epoch: 1, Inherits: []pool.Inherited{{Client: 7}}}, state: RangeTaking}}
		p.Go("manager", h.Run)
		x.under.Wait(env.Forever)
		h.End(true)
		if x.taking || !x.took || x.alive == nil {
			t.Errorf("End returns beside a Take: %v, which ended: %v, client given up: %v", x.taking, x.took, x.alive)
		}
	})
	if err != nil {
		t.Error(err)
	}
}
