package dex

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestFullLeafAndALateLog: a leaf has no room for a key, or is to be divided, and it cannot be
// written back within the limit of that operation, because a batch of the log is late. What was
// answered before is there afterwards.
func TestFullLeafAndALateLog(t *testing.T) {
	OnFabrics(t, func(t *testing.T, o sim.Options) {
		w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 20_000_000})
		c, err := poolsim.New(w, poolsim.Options{Servers: 1, Chunks: 12, ChunkBytes: 512 << 10, Locks: 64, Fabric: o})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Run(func(p *simenv.Process) {
			if err := fullAndLate(c, p); err != nil {
				w.Fail(err)
			}
		}); err != nil {
			t.Error(err)
		}
	})
}

func fullAndLate(c *poolsim.Cluster, p *simenv.Process) error {
	pl, err := c.Open(p)
	if err != nil {
		return err
	}
	i, err := Open(pl, index.Options{Uint64: true, MaxValueBytes: 16, NodeBytes: 256, CacheBytes: 1 << 20})
	if err != nil {
		return err
	}
	x := i.(*dex)
	if err := x.Take(pool.Holding{Epoch: 1}); err != nil {
		return err
	}
	s, err := x.newSession()
	if err != nil {
		return err
	}
	hasty, err := x.newSession()
	if err != nil {
		return err
	}
	hasty.SetLimit(5 * time.Millisecond)
	key := func(n, m uint64) []byte { return binary.BigEndian.AppendUint64(nil, n<<20+m) }
	const keys = 40
	for n := range uint64(keys) {
		if err := s.Insert(key(n, 0), []byte("before")); err != nil {
			return err
		}
	}
	if err := x.flushAll(false); err != nil {
		return err
	}
	refused := 0
	for n := range uint64(keys) {
		s.Defer(true)
		if err := s.Update(key(n, 0), []byte("answer")); err != nil {
			return err
		}
		late := x.log.Appender()
		late.Start(s.Position()) // until Finish the batch is under way
		for m := uint64(1); m <= 20 && err == nil; m++ {
			if err = hasty.Insert(key(n, m), []byte("new")); m == 20 && err == nil {
				err = hasty.splitAt(key(n, 1))
			}
		}
		if errors.Is(err, index.ErrTimeout) {
			refused++
		}
		late.Finish(nil)
		s.Defer(false)
		if err = s.Durable(s.Position()); err != nil {
			return err
		}
	}
	if err := pl.Alive(); err != nil || refused == 0 {
		return fmt.Errorf("%d operations timed out, and the client: %v", refused, err)
	}
	for n := range uint64(keys) {
		if got, err := s.Lookup(key(n, 0), nil); err != nil || string(got) != "answer" {
			return fmt.Errorf("key %d has %q after %d operations that timed out, want %q: %v", n, got, refused, "answer", err)
		}
	}
	return errors.Join(hasty.Close(), s.Close(), x.Close())
}
