package pooltest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestReclamation: the cluster counts epochs and lets chunks be adopted as memory servers do, where
// tests fence clients themselves.
func TestReclamation(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Servers: 1, Chunks: 1})
	control, limit := c.Control(), time.Second
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		id, err := control.Register(limit)
		must(err)
		grant, err := control.Connect(1, id, limit)
		must(err)
		if grant.Epoch != 1 {
			t.Errorf("client %d connects in epoch %d", id, grant.Epoch)
		}
	}
	renew := func(passed, epoch, safe uint64) {
		t.Helper()
		if r, err := control.Renew(1, 1, pool.Epochs{Passed: passed, Wanted: 3, UncachedPassed: 1}, limit); err != nil || r != (pool.Renewal{Epoch: epoch, Safe: safe, UncachedEpoch: 1, UncachedSafe: r.UncachedSafe}) {
			t.Errorf("%+v, %v; want epoch %d, safe %d", r, err, epoch, safe)
		}
	}
	chunk, err := control.AllocateChunk(1, 2, 512, false, limit)
	must(err)
	renew(1, 2, 1)
	renew(2, 2, 1)
	if _, err := control.AllocateChunk(1, 1, 512, true, limit); !errors.Is(err, pool.ErrPoolFull) {
		t.Errorf("a chunk of a live client is adopted: %v", err)
	}
	must(c.Fence(2))
	renew(2, 3, 2)
	if got, err := control.AllocateChunk(1, 1, 512, true, limit); err != nil || got != chunk {
		t.Errorf("chunk %#x is adopted, want %#x; %v", got, chunk, err)
	}
	must(control.FreeChunk(1, 1, chunk, limit))
	if c.UsedChunks() != 0 {
		t.Errorf("%d chunks are used", c.UsedChunks())
	}
}
