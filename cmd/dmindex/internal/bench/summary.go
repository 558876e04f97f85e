package bench

import (
	"maps"
	"slices"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// Summary is a run as it is reported.
type Summary struct {
	Design          string          `json:"design"`
	Transport       string          `json:"transport"`
	Workload        string          `json:"workload"`
	Distribution    string          `json:"distribution"`
	Switches        map[string]bool `json:"switches"` // those that were given; the others are on
	Clients         int             `json:"clients"`
	Records         uint64          `json:"records"`
	Ops             uint64          `json:"ops"`
	Throughput      float64         `json:"throughput_ops"` // operations a second
	CPU             float64         `json:"cpu_us_per_op"`  // of the process that measured
	P50             float64         `json:"p50_us"`
	P99             float64         `json:"p99_us"`
	P999            float64         `json:"p999_us"`
	Longest         float64         `json:"longest_us"`
	Verbs           VerbsPerOp      `json:"verbs_per_op"`
	RoundTripsPerOp float64         `json:"round_trips_per_op"`
	BytesPerOp      float64         `json:"bytes_per_op"`     // without those of the log
	LogBytesPerOp   float64         `json:"log_bytes_per_op"` // of the redo log
	// of a perfect static cache; 0 = none, or the design has no cache of leaves
	OptimumReads     float64 `json:"optimum_reads_per_op"`
	ReadsOverOptimum float64 `json:"reads_over_optimum"`
	// of a static cache that knows how popular items are, not what will be drawn; 0 = none, or
	// popularity changes
	PopularReads     float64 `json:"popular_reads_per_op"`
	ReadsOverPopular float64 `json:"reads_over_popular"`
	// operations of the busiest compute server over the mean; 1 = every one does everything
	Skew float64 `json:"skew"`
	// operations a second of all compute servers, each while it had work
	Apart              float64 `json:"apart_ops"`
	CacheBytes         uint64  `json:"cache_bytes"` // of all compute servers together
	CacheHitRate       float64 `json:"cache_hit_rate"`
	MemoryBytesPerItem float64 `json:"memory_bytes_per_item"`
}

// VerbsPerOp is how many requests of a kind an operation took on average.
type VerbsPerOp struct {
	Read   float64 `json:"read"`
	Write  float64 `json:"write"`
	Atomic float64 `json:"atomic"`
	RPC    float64 `json:"rpc"`
	Log    float64 `json:"log_write"` // WRITEs of the redo log, which are not in Write
}

// Summary of a result.
func (r *Result) Summary() Summary {
	v, log, ops := r.Stats.Verbs.Sub(&r.Stats.Log), &r.Stats.Log, float64(r.Ops)
	s := Summary{
		Design: r.Run.Design, Transport: r.Run.Transport, Workload: r.Run.Workload.Name, Distribution: r.Run.Distribution.String(),
		Switches: map[string]bool{}, Clients: r.Run.Clients, Records: r.Run.Records, Ops: r.Ops, Throughput: r.Throughput, CPU: float64(r.CPU) / ops / 1e3,
		P50: r.Micros(0.5), P99: r.Micros(0.99), P999: r.Micros(0.999), Longest: r.Micros(1),
		Verbs: VerbsPerOp{Read: float64(v.Requests[verbs.Read]) / ops, Write: float64(v.Requests[verbs.Write]) / ops,
			Atomic: float64(v.Atomics()) / ops, RPC: float64(r.Calls+v.Requests[verbs.Call]) / ops, Log: float64(log.Requests[verbs.Write]) / ops},
		RoundTripsPerOp: float64(r.Stats.Verbs.RoundTrips) / ops, Skew: r.Skew, Apart: r.Apart, CacheBytes: r.Stats.CacheBytes, MemoryBytesPerItem: r.ItemBytes,
	}
	if s.OptimumReads = r.Optimum.clairvoyant; s.OptimumReads > 0 {
		s.ReadsOverOptimum = s.Verbs.Read / s.OptimumReads
	}
	if s.PopularReads = r.Optimum.popular; s.PopularReads > 0 {
		s.ReadsOverPopular = s.Verbs.Read / s.PopularReads
	}
	for i := range v.Bytes {
		s.BytesPerOp += float64(v.Bytes[i]) / ops
		s.LogBytesPerOp += float64(log.Bytes[i]) / ops
	}
	if descents := r.Stats.CacheHits + r.Stats.CacheMisses; descents > 0 {
		s.CacheHitRate = float64(r.Stats.CacheHits) / float64(descents)
	}
	maps.Copy(s.Switches, r.Run.Switches)
	return s
}

// Micros is a quantile of latencies in microseconds.
func (r *Result) Micros(q float64) float64 { return float64(r.Latency.Quantile(q)) / 1e3 }

// CachePerItem is the cache of a compute server for each item that was loaded.
func (r *Result) CachePerItem() float64 {
	return float64(r.Stats.CacheBytes) / float64(r.Run.ComputeServers) / float64(r.Run.Records)
}

// Name is the run's label, or the design and what is off of it.
func (r *Result) Name() string {
	name := r.Run.Design
	if r.Run.Label != "" {
		return r.Run.Label
	}
	for _, n := range slices.Sorted(maps.Keys(r.Run.Switches)) {
		if !r.Run.Switches[n] {
			name += " -" + n
		}
	}
	return name
}
