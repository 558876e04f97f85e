package indexsim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// TestGenerations: clients come and go, and some die, on servers with few chunks. Each goes on with
// what its predecessors left, so the pool does not fill; and what they wrote is there.
func TestGenerations(t *testing.T) {
	const generations, keys, lease = 60, 25, 20 * time.Millisecond
	w := simenv.New(simenv.Options{Seed: 5, MaxEvents: 50_000_000})
	c, err := poolsim.New(w, poolsim.Options{Servers: 2, ChunkBytes: 128 << 10, Chunks: 6, Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	d := design(t)
	o := index.Options{MaxKeyBytes: 24, MaxValueBytes: 16, CacheBytes: crashCache}
	key := func(g, n int) []byte { return fmt.Appendf(nil, "%02d of generation %d", n, g) }
	err = w.Run(func(p *simenv.Process) {
		for g := range generations {
			proc, done := w.NewProcess(fmt.Sprint("generation ", g)), p.NewEvent()
			proc.Go("main", func() {
				defer done.Set()
				err := func() error {
					pl, err := c.Open(proc)
					if err != nil {
						return err
					}
					x, err := d.Open(pl, o)
					if err != nil {
						return err
					}
					s, err := x.Session()
					if err != nil {
						return err
					}
					for n := range keys {
						if err := s.Insert(key(g, n), []byte("value")); err != nil {
							return err
						}
						if g > 0 {
							if _, err := s.Lookup(key(g-1, n), nil); err != nil {
								return fmt.Errorf("%s: %w", key(g-1, n), err)
							}
						}
					}
					if g%3 != 0 { // the others die with what they have
						if err := s.Close(); err != nil {
							return err
						}
						return pl.Close()
					}
					return nil
				}()
				if err != nil {
					w.Fail(fmt.Errorf("generation %d: %w", g, err))
				}
			})
			done.Wait(env.Forever)
			proc.Kill()
			p.Sleep(2 * lease)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := c.UsedChunks(); n > 6 {
		t.Errorf("%d chunks are in use after %d clients", n, generations)
	}
}
