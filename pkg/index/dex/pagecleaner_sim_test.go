package dex_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestWriterKeepsUp changes many leaves, all in the cache: the writer is woken when the log is half
// full, so the log never becomes nearly full, and many leaves are written back in a round trip.
func TestWriterKeepsUp(t *testing.T) {
	o := poolsim.Options{Servers: 2, Chunks: 200, ChunkBytes: 64 << 10, Locks: 64, Lease: 100 * time.Millisecond}
	inSimulation(t, o, func(c *poolsim.Cluster, p *simenv.Process) error {
		x, s, err := openAll(c, p, nil, index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256, CacheBytes: 1 << 20})
		if err != nil {
			return err
		}
		const keys = 2000
		r, most := rand.New(rand.NewPCG(1, 2)), uint64(0)
		for n := range 10 * keys {
			key := uint64(n)
			if n >= keys {
				key = r.Uint64N(keys)
			}
			if err := s.Upsert(simKey(key), fmt.Appendf(nil, "%d", n)); err != nil {
				return err
			}
			used, all := dex.LogUse(x)
			if most = max(most, used); n >= keys && used > all*3/4 {
				return fmt.Errorf("after change %d, %d of %d bytes of the log are in use", n, used, all)
			}
		}
		leaves, trips := dex.WrittenForLog(x)
		t.Logf("%d leaves in %d round trips; at most %d bytes of the log", leaves, trips, most)
		if leaves < 1000 || uint64(leaves) < 10*trips {
			return fmt.Errorf("%d leaves were written back for the log, in %d round trips", leaves, trips)
		}
		return s.Close()
	})
}

// TestWriterEndsWithItsClient: the log cannot be written any more, and no session has noticed. The
// writer gives the client up, with the reason: nobody else would make room in the log.
func TestWriterEndsWithItsClient(t *testing.T) {
	inSimulation(t, poolsim.Options{Servers: 1, Chunks: 60, ChunkBytes: 64 << 10, Locks: 64}, func(c *poolsim.Cluster, p *simenv.Process) error {
		var x index.Partitioned
		d := &hookedDevice{Device: c.Fabric.Device(p), begin: func(list []verbs.Request) error {
			if x != nil && len(list) > 0 && list[0].Op == verbs.Write && dex.InLog(x, pool.NewAddr(1, list[0].Remote)) {
				return verbs.ErrTimeout
			}
			return nil
		}}
		i, s, err := openAll(c, p, d, index.Options{Uint64: true, MaxValueBytes: 16, NodeBytes: 256, CacheBytes: 64 << 10})
		if err != nil {
			return err
		}
		if err := s.Insert(simKey(0), []byte("first")); err != nil {
			return err
		}
		x = i
		s.Defer(true)
		for used, all := dex.LogUse(x); used <= all/2+64; used, _ = dex.LogUse(x) {
			if err := s.Update(simKey(0), []byte("deferred")); err != nil {
				return err
			}
		}
		p.Sleep(time.Second)
		if err := dex.Alive(x); !errors.Is(err, index.ErrFenced) || !errors.Is(err, verbs.ErrTimeout) {
			return fmt.Errorf("nobody makes room in the log, and the client: %v", err)
		}
		return nil
	})
}

// TestWriterStops: an index is closed while its writer makes room in the log, and every list takes
// long. The writer stops in the middle, and nobody closes what it uses.
func TestWriterStops(t *testing.T) {
	inSimulation(t, poolsim.Options{Servers: 1, Chunks: 60, ChunkBytes: 64 << 10, Locks: 64}, func(c *poolsim.Cluster, p *simenv.Process) error {
		slow := false
		d := &hookedDevice{Device: c.Fabric.Device(p), begin: func([]verbs.Request) error {
			if slow {
				p.Sleep(8 * time.Second)
			}
			return nil
		}}
		x, s, err := openAll(c, p, d, index.Options{Uint64: true, MaxValueBytes: 16, NodeBytes: 256, CacheBytes: 1 << 20})
		if err != nil {
			return err
		}
		const keys = 1500
		for n := range uint64(keys) {
			if err := s.Insert(simKey(n), []byte("first")); err != nil {
				return err
			}
		}
		if _, err := x.(index.Checker).Check(); err != nil { // which writes all back
			return err
		}
		s.Defer(true)
		n := uint64(0)
		for used, all := dex.LogUse(x); used <= all/2+64; used, all = dex.LogUse(x) {
			slow = used > all/4
			if err := s.Update(simKey(n*7%keys), []byte("deferred")); err != nil {
				return err
			}
			n++
		}
		p.Sleep(time.Second)
		return errors.Join(s.Close(), x.Close())
	})
}
