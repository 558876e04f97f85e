package indexsim_test

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// TestFailedLoadGivesChunksBack: the chunks of a bulk load whose source fails go back to the memory
// servers, though nobody gives up anything meanwhile: other clients, and other indexes, need them.
func TestFailedLoadGivesChunksBack(t *testing.T) {
	eachDesign(t, func(t *testing.T, d index.Design, _ bool) {
		const pairs, chunk = 3000, 16 << 10
		w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 20_000_000})
		c, err := poolsim.New(w, poolsim.Options{Servers: 2, Chunks: 64, ChunkBytes: chunk, RenewEvery: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Run(func(p *simenv.Process) {
			pl, err := c.Open(p)
			if err != nil {
				t.Fatal(err)
			}
			x, err := d.Open(pl, index.Options{Uint64: true, MaxValueBytes: 16, CacheBytes: crashCache})
			if err != nil {
				t.Fatal(err)
			}
			p.Sleep(time.Second)
			before, during := len(c.Chunks()), 0
			failed := errors.New("the source fails")
			err = x.BulkLoad(func(yield func(key, value []byte) bool) error {
				for n := range uint64(pairs) {
					if !yield(binary.BigEndian.AppendUint64(nil, n), []byte("a value")) {
						break
					}
				}
				during = len(c.Chunks())
				return failed
			}, 1)
			if !errors.Is(err, failed) {
				t.Errorf("the load ended with %v", err)
			}
			p.Sleep(time.Second)
			if after := len(c.Chunks()); during < before+4 || after > before+4 {
				t.Errorf("%d chunks, %d during the load, %d after it failed", before, during, after)
			}
		}); err != nil {
			t.Fatal(err)
		}
	})
}
