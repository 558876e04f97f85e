package sherman_test

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/indextest"
	"github.com/dmindex/dmindex/pkg/index/sherman"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// BenchmarkRatios compares an index on shm, leaves not cached, with a B-tree in the same process,
// and two goroutines with one.
func BenchmarkRatios(b *testing.B) {
	c := pooltest.New(b, pooltest.Options{Chunks: 64, ChunkBytes: 4 << 20, Servers: 1, Locks: 64 << 10})
	x, err := sherman.Open(c.Open(b), index.Options{Uint64: true, MaxValueBytes: 8})
	if err != nil {
		b.Fatal(err)
	}
	indextest.Ratios(b, x)
}
