package ownership

import (
	"log/slog"
	"testing"
	"time"

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
