package dex_test

import (
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// TestPreparedChangesWaitLess: 16 changes of leaves without a frame take 16 round trips one by one,
// and a quarter of that at most if they were prepared; if the frames are full, half at most.
func TestPreparedChangesWaitLess(t *testing.T) {
	const keys, batch = 3000, 16
	inSimulation(t, poolsim.Options{Servers: 2, Chunks: 40, ChunkBytes: 64 << 10}, func(c *poolsim.Cluster, p *simenv.Process) error {
		x, s, err := openAll(c, p, nil, index.Options{Uint64: true, MaxValueBytes: 24, NodeBytes: 512, CacheBytes: 1 << 20})
		if err != nil {
			return err
		}
		s.Defer(true)
		for n := range uint64(keys) {
			if err := s.Insert(simKey(n*7919%keys), make([]byte, 16)); err != nil {
				return err
			}
		}
		// trips updates keys of as many leaves, and returns how often that waited.
		trips := func(round uint64, prepare bool) (uint64, error) {
			var some, values [][]byte
			for i := range uint64(batch) {
				some, values = append(some, simKey((i*keys/batch+round*5)%keys)), append(values, make([]byte, 16))
			}
			before := s.Counters()
			if prepare {
				if err := s.Prepare(some, values); err != nil {
					return 0, err
				}
			}
			for i, key := range some {
				if err := s.Update(key, values[i]); err != nil {
					return 0, err
				}
			}
			after := s.Counters()
			return after.RoundTrips - before.RoundTrips, s.Durable(s.Position())
		}
		cold := map[bool]uint64{}
		for i, prepare := range []bool{false, true} {
			if _, err := x.Give(nil, nil); err != nil { // then no leaf has a frame
				return err
			}
			if err := x.Take(pool.Holding{Epoch: uint64(2 + i)}); err != nil {
				return err
			}
			if _, err := s.Lookup(simKey(0), nil); err != nil { // the root is known
				return err
			}
			if cold[prepare], err = trips(0, prepare); err != nil {
				return err
			}
		}
		full := map[bool]uint64{}
		for round := range uint64(400) {
			n, err := trips(round, round%2 == 0)
			if err != nil {
				return err
			}
			full[round%2 == 0] += n
		}
		t.Logf("without frames %d round trips, prepared %d; with full frames %d, prepared %d", cold[false], cold[true], full[false], full[true])
		if cold[false] < batch-1 || 4*cold[true] > cold[false] {
			return fmt.Errorf("changes without frames take %d round trips, prepared ones %d", cold[false], cold[true])
		}
		if 2*full[true] > full[false] {
			return fmt.Errorf("changes with full frames take %d round trips, prepared ones %d", full[false], full[true])
		}
		return s.Close()
	})
}
