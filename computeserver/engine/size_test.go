package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/computeservertest/memindex"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/partition"
)

// TestCountIsShared: whoever asks for the number of keys while a count is under way gets its
// outcome, and does not wait for counts of those who asked before.
func TestCountIsShared(t *testing.T) {
	const asking, wait = 50, time.Second
	w := simenv.New(simenv.Options{Seed: 1, Preempt: 4})
	err := w.Run(func(p *simenv.Process) {
		store, closed := memindex.New(p, 8, 8), true
		open := func() (ownership.Opened, error) {
			if closed {
				return nil, errors.New("no memory server answers")
			}
			return store.Open(), nil
		}
		c := New(Options{
			Env: p, Index: computeservertest.Config(config.RoutingAny), Self: 1, SharesAll: true, Limit: 30 * time.Second, MaxSessions: 4, MaxWaiting: 64,
			Open: open, Log: computeservertest.Logger(t),
		})
		m, err := partition.ByBoundaries(computeservertest.Index, []partition.Server{{ID: 1, Name: "pod-1"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.View.Apply(m)
		p.Go("engine", c.Sessions.Run)
		memo := NewCounting(p)
		ask := func(check func(n int64, err error)) (took time.Duration) {
			began, all := p.Now(), env.NewWaitGroup(p)
			for range asking {
				all.Go("asks", func() { check(c.Size(memo, wait)) })
			}
			all.Wait(env.Forever)
			return p.Now() - began
		}
		took := ask(func(n int64, err error) {
			if err == nil {
				t.Errorf("an index that is not open has %d keys", n)
			}
		})
		if took > 2*wait {
			t.Errorf("%d that asked while nothing answers waited for %v", asking, took)
		}
		closed = false
		for c.Sessions.Opened() == nil {
			p.Sleep(time.Millisecond)
		}
		ask(func(n int64, err error) {
			if n != 0 || err != nil {
				t.Errorf("%d keys, %v", n, err)
			}
		})
		c.Sessions.Halt(time.Minute)
	})
	if err != nil {
		t.Fatal(err)
	}
}
