package ownership

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/partition"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestSessionThatIsLate: a session uses keys that are to move. Its change began at the end of its
// limit, its list took as long as a list may, and then it waited for the log. All of the client is
// not given up for that. It is for a session that stays for longer.
func TestSessionThatIsLate(t *testing.T) {
	const limit, moment = 5 * time.Second, 100 * time.Millisecond
	for _, c := range []struct {
		stays  time.Duration
		fenced bool
	}{
		{limit + pool.DefaultLimit + limit - moment, false},
		{time.Hour, true},
	} {
		err := simenv.New(simenv.Options{Seed: 1}).Run(func(p *simenv.Process) {
			x, v, tables := &holder{}, NewView(p, 1, false), NewTables(p)
			var gaveUp error
			h := NewManager(x, Options{
				Env: p, View: v, Tables: tables, Limit: limit, TakeOvers: NewTakeOvers(p), Log: slog.New(slog.DiscardHandler),
				GiveUp: func(_ Opened, why error) { gaveUp = why },
			})
			v.Apply(&partition.Map{Generation: 1, Index: "uid", Servers: []partition.Server{{ID: 2}}, Ranges: []partition.Range{{Owner: 2, Epoch: 2}}})
			in := tables.Enter()
			p.Go("session", func() { p.Sleep(c.stays); tables.Leave(in) })
			tables.Replace(x, nil)
			h.mu.Lock()
			h.held = []heldRange{{Holding: pool.Holding{Epoch: 1}, state: RangeClosing}}
			h.step(0)
			state := h.held[0].state
			h.mu.Unlock()
			if errors.Is(gaveUp, index.ErrFenced) != c.fenced || (state == RangeGiving) == c.fenced {
				t.Errorf("a session stays for %v: given up %v, the range is %v", c.stays, gaveUp, state)
			}
			h.End(false)
		})
		if err != nil {
			t.Error(err)
		}
	}
}
