package main

import (
	"strings"
	"testing"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/local"
)

// TestLocalCache: the caches of a local index together are a quarter of its memory unless told, and
// none is smaller than the design's default; what was asked for is taken, or refused with a reason.
func TestLocalCache(t *testing.T) {
	f := func(memoryServers, computeServers int, memory, asked uint64, want int, refusal string) {
		t.Helper()
		c := &local.Config{MemoryServers: memoryServers, ComputeServers: computeServers, MemoryBytes: memory}
		got, err := localCache(c, asked)
		if got != want || (err != nil) != (refusal != "") || err != nil && !strings.Contains(err.Error(), refusal) {
			t.Errorf("%d memory servers of %d bytes, %d compute servers, asked for %d: %d, %v; want %d, %q", memoryServers, memory, computeServers, asked, got, err, want, refusal)
		}
	}
	f(2, 2, 1<<30, 0, 256<<20, "")
	f(2, 1, 1<<30, 0, 512<<20, "")
	f(1, 64, 1<<30, 0, 0, "")
	f(2, 2, 256<<20, 0, 0, "")
	f(0, 2, 1<<30, 0, 0, "")
	f(2, 0, 1<<30, 0, 0, "")
	f(2, 2, 1<<30, 1<<20, 1<<20, "")
	f(2, 2, 1<<30, 2<<30, 2<<30, "")
	f(2, 2, 1<<20, 64<<20, 64<<20, "")
	f(2, 2, 1<<30, 1, 0, "1Mi at least")
	f(2, 2, 1<<30, 1<<40, 0, "a larger --memory")
}
