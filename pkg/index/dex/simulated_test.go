package dex

import (
	"errors"
	"testing"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// simulated runs f with an index that this client has taken, in a simulation.
func simulated(t *testing.T, f func(p *simenv.Process, x *dex, s *session) error) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 20_000_000})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Chunks: 12, ChunkBytes: 512 << 10, Locks: 64})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(func(p *simenv.Process) {
		pl, err := c.Open(p)
		if err != nil {
			w.Fail(err)
			return
		}
		o, err := Open(pl, index.Options{Uint64: true, MaxValueBytes: 16, NodeBytes: 256, CacheBytes: 16 << 10})
		if err != nil {
			w.Fail(err)
			return
		}
		x := o.(*dex)
		err = x.Take(pool.Holding{Epoch: 1})
		var s *session
		if err == nil {
			s, err = x.newSession()
		}
		if err == nil {
			err = errors.Join(f(p, x, s), s.Close())
		}
		if err = errors.Join(err, x.Close()); err != nil {
			w.Fail(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
}
