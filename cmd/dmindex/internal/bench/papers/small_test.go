package papers

import (
	"io"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench"
)

// smallBase is what all runs of a small experiment have in common.
func smallBase() *bench.Run {
	return &bench.Run{Design: "sherman", Records: 1000, Ops: 1500, Warmup: 200, Clients: 4, MemoryServers: 2, ComputeServers: 2,
		Uint64: true, KeyBytes: 8, ValueBytes: 8, ScanFrom: 1, ScanTo: 100, Seed: 1, Progress: io.Discard}
}
