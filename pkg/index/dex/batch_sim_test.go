package dex_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// TestBatchHasOneLimit: a batch of several rounds meets leaves that another session holds, one
// after the other, each for less than the limit. The limit is of the batch.
func TestBatchHasOneLimit(t *testing.T) {
	const limit, holds, keys = 50 * time.Millisecond, 40 * time.Millisecond, 800
	inSimulation(t, poolsim.Options{Chunks: 40, ChunkBytes: 64 << 10}, func(c *poolsim.Cluster, p *simenv.Process) error {
		x, s, err := openAll(c, p, nil, index.Options{Uint64: true, MaxValueBytes: 24, NodeBytes: 256, CacheBytes: 8 << 10})
		if err != nil {
			return err
		}
		for n := range uint64(keys) {
			if err := s.Insert(simKey(n), make([]byte, 16)); err != nil {
				return err
			}
		}
		var batch [][]byte
		for n := uint64(0); n < keys; n += keys / 80 { // each in a leaf of its own
			batch = append(batch, simKey(n))
		}
		other, err := x.Session()
		if err != nil {
			return err
		}
		held, over := p.NewEvent(), env.NewWaitGroup(p)
		over.Go("hold", func() {
			for _, key := range [][]byte{batch[0], batch[len(batch)-1]} {
				_ = other.Modify(key, func([]byte, bool) ([]byte, index.Action) {
					held.Set()
					p.Sleep(holds)
					return nil, index.Keep
				})
			}
		})
		held.Wait(env.Forever)
		s.SetLimit(limit)
		began := p.Now()
		err = s.LookupBatch(batch, func(int, []byte, error) {})
		took := p.Now() - began
		over.Wait(env.Forever)
		if !errors.Is(err, index.ErrTimeout) || took > limit+holds/4 {
			return fmt.Errorf("a batch with a limit of %v ends after %v: %v", limit, took, err)
		}
		return nil
	})
}
