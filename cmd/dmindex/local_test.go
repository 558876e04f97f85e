package main

import (
	"testing"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/local"
)

// TestLocalCache: the caches of a local index together are a quarter of its memory, and none is
// smaller than the design's default.
func TestLocalCache(t *testing.T) {
	f := func(memoryServers, computeServers int, memory uint64, want int) {
		t.Helper()
		c := &local.Config{MemoryServers: memoryServers, ComputeServers: computeServers, MemoryBytes: memory}
		if got := localCache(c); got != want {
			t.Errorf("%d memory servers of %d bytes, %d compute servers: %d; want %d", memoryServers, memory, computeServers, got, want)
		}
	}
	f(2, 2, 1<<30, 256<<20)
	f(2, 1, 1<<30, 512<<20)
	f(1, 64, 1<<30, 0)
	f(2, 2, 256<<20, 0)
	f(0, 2, 1<<30, 0)
	f(2, 0, 1<<30, 0)
}
