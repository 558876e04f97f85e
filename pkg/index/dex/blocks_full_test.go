package dex

import (
	"errors"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestFullLeafInFullPool: there is memory for a value's block, and none to divide the leaf that is
// to refer to it. The insert says so, and does not wait for the block that it gives back itself.
func TestFullLeafInFullPool(t *testing.T) {
	const node = 512
	c := pooltest.New(t, pooltest.Options{Provider: "shm", Servers: 1, Chunks: 4, ChunkBytes: 64 << 10})
	open, err := Open(c.Open(t), longOptions(1<<20))
	mustDo(t, err)
	x := open.(*dex)
	t.Cleanup(func() { mustDo(t, x.Close()) })
	mustDo(t, x.Take(pool.Holding{Epoch: 1}))
	s, err := x.newSession()
	mustDo(t, err)
	t.Cleanup(func() { mustDo(t, s.Close()) })
	value := longValue(1, 1)
	size := blocks.Size(&x.lay.Codec, len(value))
	var places []pool.Addr // for blocks
	for range 100 {
		a, err := x.pool.Allocate(size, pool.Nil)
		mustDo(t, err)
		places = append(places, a)
	}
	for _, size := range []int{size, node} {
		err = nil
		for err == nil {
			_, err = x.pool.Allocate(size, pool.Nil)
		}
		if !errors.Is(err, pool.ErrPoolFull) {
			t.Fatal(err)
		}
	}
	for _, a := range places {
		x.pool.Free(a, size)
	}
	for n := uint64(0); ; n++ {
		before := x.pool.Reclaimed()
		err := s.Insert(scanKey(n), value)
		if tries := x.pool.Reclaimed() - before; tries > 2 {
			t.Fatalf("%d blocks came back beside the insert of pair %d: %v", tries, n, err)
		}
		if errors.Is(err, index.ErrPoolFull) {
			break
		}
		mustDo(t, err)
	}
	_, err = x.pool.Allocate(size, pool.Nil) // so the leaf is what found no memory
	mustDo(t, err)
}
