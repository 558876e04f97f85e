package local

import (
	"testing"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/memory"
)

// TestChunkBytes: chunks are larger only where each compute server has enough of them.
func TestChunkBytes(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   uint64
	}{
		{Config{MemoryBytes: 64 << 20, ComputeServers: 2}, 8 << 20},
		{Config{MemoryBytes: 512 << 20, ComputeServers: 2}, 16 << 20},
		{Config{MemoryBytes: 1 << 30, ComputeServers: 2}, 32 << 20},
		{Config{MemoryBytes: 1 << 40, ComputeServers: 2}, 32 << 20},
		{Config{MemoryBytes: 1 << 30, ComputeServers: 4}, 16 << 20},
		{Config{MemoryBytes: 1 << 30, ComputeServers: 16}, 8 << 20},
		{Config{MemoryBytes: 1 << 30, ComputeServers: 2, Persist: &memory.Persist{}}, 0},
	} {
		if got := c.config.chunkBytes(); got != c.want {
			t.Errorf("%d bytes of memory, %d compute servers, files %v: chunks of %d bytes, not %d", c.config.MemoryBytes, c.config.ComputeServers, c.config.Persist != nil, got, c.want)
		}
	}
}
