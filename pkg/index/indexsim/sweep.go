package indexsim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
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

// lastSweeps lets the clients sweep that live when all work is over. Where some may have died, so
// does the last client, after it has adopted what they left. It returns whose sweeps came to their
// end.
func (h *history) lastSweeps(c *poolsim.Cluster, p *simenv.Process, sh *shape, last opened) map[uint32]bool {
	swept := map[uint32]bool{}
	if _, ok := last.index.(index.Sweeper); ok && sh.lease > 0 {
		h.sweeping = append(h.sweeping, &sweeping{p, last})
		if err := AdoptAll(c, last.pool); err != nil && !errors.Is(err, index.ErrPoolFull) {
			p.World().Fail(err)
		}
	}
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

// AdoptAll lets the client of pl adopt the chunks of all clients that ended. Each adoption is for
// want of room for a node of which a slab has one. ErrPoolFull: some are left, of another kind.
func AdoptAll(c *poolsim.Cluster, pl *pool.Pool) (err error) {
	const size = 4032
	var taken []pool.Addr
	for _, id := range pl.Servers() {
		for err == nil && c.Left(id) > 0 {
			var a pool.Addr
			if a, err = pl.AllocateBlock(size, pool.NewAddr(id, 64)); err == nil {
				taken = append(taken, a)
			}
		}
	}
	for _, a := range taken {
		pl.Free(a, size)
	}
	if err != nil {
		err = fmt.Errorf("adopt what is left: %w", err)
	}
	return err
}
