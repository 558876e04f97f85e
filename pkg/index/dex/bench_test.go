package dex_test

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/index/indextest"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// BenchmarkLocalTree compares an index on shm, all of it in the cache, with a B-tree in the same
// process, and two goroutines with one.
func BenchmarkLocalTree(b *testing.B) {
	c := pooltest.New(b, pooltest.Options{Chunks: 64, ChunkBytes: 4 << 20, Servers: 1, Locks: 64 << 10})
	x, err := dex.Open(c.Open(b), index.Options{Uint64: true, MaxValueBytes: 8, CacheBytes: 512 << 20})
	if err == nil {
		err = x.(index.Partitioned).Take(pool.Holding{Epoch: 1})
	}
	if err != nil {
		b.Fatal(err)
	}
	indextest.Ratios(b, x)
}
