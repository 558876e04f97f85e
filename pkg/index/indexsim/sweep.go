package indexsim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
)

// sweeping is a client that sweeps (index.Sweeper).
type sweeping struct {
	p *simenv.Process
	x opened
}

// sweepsOf draws whether the clients of a run sweep beside their operations, all the time: in one
// run of four. They hear of epochs often then, for which a sweep waits. The source is one of its
// own.
func sweepsOf(seed uint64, sh *shape) {
	r := rand.New(rand.NewPCG(seed, 86))
	if sh.sweeps = r.IntN(4) == 0; sh.sweeps && sh.renew == 0 {
		sh.renew = []time.Duration{20, 100}[r.IntN(2)] * time.Microsecond
	}
}

// sweepBeside lets the client sweep beside its operations, until stop is called, which waits for
// the end.
func (s *sweeping) sweepBeside(sh *shape, h *history) (stop func()) {
	x, ok := s.x.index.(index.Sweeper)
	if !sh.sweeps || !ok {
		return func() {}
	}
	h.sweeping = append(h.sweeping, s)
	over, ended := false, s.p.NewEvent()
	s.p.Go("sweeps", func() {
		defer ended.Set()
		for !over {
			_ = s.sweep(x, sh, h)
			s.p.Sleep(50 * time.Microsecond)
		}
	})
	return func() {
		over = true
		ended.Wait(env.Forever)
	}
}

// sweep makes one sweep. Where nobody dies there is nothing to be given back.
func (s *sweeping) sweep(x index.Sweeper, sh *shape, h *history) error {
	n, err := x.Sweep()
	if h.swept += n; err == nil {
		h.sweeps++
	}
	if n > 0 && sh.lease == 0 {
		s.p.World().Fail(fmt.Errorf("a sweep gave back %d nodes, and nobody died", n))
	}
	return err
}

// lastSweeps lets the clients sweep that live when all work is over. It returns whose sweeps came
// to their end.
func (h *history) lastSweeps(p *simenv.Process, sh *shape) map[uint32]bool {
	swept := map[uint32]bool{}
	for _, s := range h.sweeping {
		if s.p.Dead() || s.x.pool.Alive() != nil {
			continue
		}
		ended := p.NewEvent()
		s.p.Go("last sweep", func() {
			defer ended.Set()
			if s.sweep(s.x.index.(index.Sweeper), sh, h) == nil {
				swept[s.x.pool.Client()] = true
			}
		})
		ended.Wait(env.Forever)
	}
	return swept
}
