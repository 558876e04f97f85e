package slottedtree

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/rounds"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// TestMemoryComesBackBesideABatch: in the first round of a batch another session replaces a long
// value. The block that goes is used again before the batch ends, however many rounds follow.
func TestMemoryComesBackBesideABatch(t *testing.T) {
	const keys = 12 * rounds.Most
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 20_000_000})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Chunks: 20, ChunkBytes: 64 << 10, Lease: 100 * time.Millisecond, RenewEvery: time.Millisecond})
	fatal(t, err)
	fatal(t, w.Run(func(p *simenv.Process) {
		over := p.NewEvent()
		client := w.NewProcess("client")
		client.Go("run", func() {
			defer over.Set()
			if err := batchBesideGarbage(c, client, keys); err != nil {
				w.Fail(err)
			}
		})
		over.Wait(env.Forever)
	}))
}

func batchBesideGarbage(c *poolsim.Cluster, p *simenv.Process, keys int) error {
	opened, err := c.Open(p)
	if err != nil {
		return err
	}
	tr, err := Open(opened, Config{Options: index.Options{Uint64: true, MaxValueBytes: 2000, InlineBytes: 8, NodeBytes: 1024}, Design: index.Design{Name: "test"}})
	if err != nil {
		return err
	}
	s, err := tr.NewSession()
	if err != nil {
		return err
	}
	other, err := tr.NewSession()
	if err != nil {
		return err
	}
	batch, long := make([][]byte, keys), bytes.Repeat([]byte{1}, 1000)
	for i := range batch {
		batch[i] = number(uint64(i))
		if err := s.Upsert(batch[i], nil); err != nil {
			return err
		}
	}
	if err := s.Upsert(batch[0], long); err != nil {
		return err
	}
	visits, before, failed := 0, opened.Reclaimed(), error(nil)
	err = s.LookupBatch(batch, func(int, []byte, error) {
		if visits++; visits == 1 {
			failed = other.Upsert(batch[0], long)
		}
		p.Sleep(time.Millisecond)
		if visits == keys && opened.Reclaimed() == before {
			failed = fmt.Errorf("nothing has come back after %d visits", visits)
		}
	})
	return errors.Join(err, failed)
}
