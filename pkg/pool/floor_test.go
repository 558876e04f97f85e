package pool

import (
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
)

// TestFloorBeforeTime: a client that says that it has passed an epoch has no operation under way
// which follows copies from before it learned of the epoch. One goroutine is the keeper, which
// learns of epochs; others begin operations all the time, and move the clock on as sweeps do.
func TestFloorBeforeTime(t *testing.T) {
	rounds := uint64(1_000_000)
	if testing.Short() {
		rounds /= 10
	}
	p := &Pool{env: env.Real()}
	p.sessions = newSessions(p.env)
	p.clock.time.Store(1)
	srv := &server{id: 1, slots: wordSlots{mu: p.env.NewMutex()}}
	var stop atomic.Bool
	group := env.NewWaitGroup(p.env)
	const operators = 2
	// the floor of the operation under way, and 1; 0 = there is none
	var follows [operators]atomic.Uint64
	var round atomic.Uint64
	for i := range operators {
		s := &Session{pool: p}
		p.sessions.add(s)
		group.Go("operations", func() {
			for n := 0; !stop.Load(); n++ {
				began := round.Load()
				s.Begin()
				follows[i].Store(p.Floor() + 1)
				for spins := 0; spins < 1000 && round.Load() < began+2 && !stop.Load(); spins++ {
				}
				follows[i].Store(0)
				s.End()
				if n%16 == 0 {
					p.tick()
				}
			}
		})
	}
	ps := passing{}
	for e := uint64(1); e <= rounds && !t.Failed(); e++ {
		ps.takeRenewal(p, srv, &Renewal{Epoch: e})
		if ps.epochsFor(p, srv).Passed == e {
			for i := range follows {
				if v := follows[i].Load(); v != 0 && v-1 < ps.of[cached].since {
					t.Errorf("epoch %d is passed at the client's time %d; an operation is under way that follows copies from %d on", e, ps.of[cached].since, v-1)
				}
			}
		}
		round.Add(1)
	}
	stop.Store(true)
	group.Wait(env.Forever)
}
