package bench

import (
	"fmt"
	"os"
	"strings"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
)

// memoryNeeded is an upper estimate of what one memory server has to hold: nodes that are half
// full, and the chunks that each client has begun.
func (r *Run) memoryNeeded() uint64 {
	entry := uint64(r.KeyBytes+r.ValueBytes)&^7 + 32 // with its slot and checksum
	items := r.Records
	for k, share := range r.Workload.Share {
		if workload.Kind(k) == workload.Insert || workload.Kind(k) == workload.Upsert && r.Workload.Sparse {
			items += uint64(r.Ops+r.Warmup) * uint64(share) / 100
		}
	}
	nodes := 2*entry*items + entry*items/4
	if r.ValueBytes > 256 { // blocks of long values: what was replaced in the last second or so
		nodes += entry * min(uint64(r.Ops+r.Warmup), 200_000)
	}
	clients := uint64(r.ComputeServers)
	// each with a chunk for its log, and another client of each that loads before
	if r.partitioned() {
		clients *= 3
	}
	return nodes/uint64(r.MemoryServers) + nodes/uint64(8*r.MemoryServers) + uint64(r.chunkBytes())*(2*clients+2) + 16<<20
}

// partitioned reports whether the design's ranges have owners.
func (r *Run) partitioned() bool {
	d, err := designOf(r.Design)
	return err == nil && !d.SharesAll
}

// chunkBytes of the memory servers.
func (r *Run) chunkBytes() int {
	if r.partitioned() {
		return LargeChunk
	}
	return smallChunk
}

// hostNeeded is what this process will take: stream, check, histograms, local lock tables and the
// memory servers.
func (r *Run) hostNeeded() uint64 {
	perClient := uint64(2 * 4 * buckets)
	lockTables := uint64(r.MemoryServers*r.ComputeServers) * tableLocks * 24
	caches := uint64(r.CacheBytes)
	if r.CachePercent > 0 { // of leaves that are 2/3 full
		caches = uint64(r.CachePercent / 100 * 1.5 * float64(r.Records) * float64(uint64(r.KeyBytes+r.ValueBytes)&^7+32))
	}
	return caches*uint64(r.ComputeServers) + lockTables + r.memoryNeeded()*uint64(r.MemoryServers) + uint64(r.Ops+r.Warmup)*24 + r.Records*17 + perClient*uint64(r.Clients)
}

// checkMemory refuses runs that do not fit this machine.
func (r *Run) checkMemory() error {
	available, ok := AvailableMemory()
	if need := r.hostNeeded(); ok && need > available {
		return fmt.Errorf("%d records and %d operations need about %s of memory, %s are free on this machine: give fewer --records or --ops",
			r.Records, r.Ops+r.Warmup, FormatBytes(need), FormatBytes(available))
	}
	return nil
}

// AvailableMemory is what the kernel says that it can give; false if it does not say.
func AvailableMemory() (uint64, bool) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		var kib uint64
		if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); n == 1 {
			return kib << 10, true
		}
	}
	return 0, false
}

// FormatBytes is a number of bytes for people.
func FormatBytes(n uint64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// ItemsShare is so many percent of the bytes of the keys and values that are loaded.
func (r *Run) ItemsShare(percent float64) int {
	return max(1, int(percent/100*float64(r.Records)*float64(r.KeyBytes+r.ValueBytes)))
}
