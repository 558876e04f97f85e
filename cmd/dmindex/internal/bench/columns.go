package bench

import (
	"fmt"
	"strings"
)

// resultColumns are the columns of tables that have a line for each result.
// docs/benchmarks/README.md says what they mean.
var resultColumns = map[string]func(r *Result, s *Summary) string{
	"design":       func(r *Result, _ *Summary) string { return r.name() },
	"transport":    func(_ *Result, s *Summary) string { return s.Transport },
	"workload":     func(_ *Result, s *Summary) string { return s.Workload },
	"keys":         func(_ *Result, s *Summary) string { return s.Distribution },
	"clients":      func(_ *Result, s *Summary) string { return fmt.Sprint(s.Clients) },
	"Mop/s":        func(_ *Result, s *Summary) string { return fmt.Sprintf("%.4g", s.Throughput/1e6) },
	"p50 µs":       func(_ *Result, s *Summary) string { return digits3(s.P50) },
	"p99 µs":       func(_ *Result, s *Summary) string { return digits3(s.P99) },
	"p999 µs":      func(_ *Result, s *Summary) string { return digits3(s.P999) },
	"cpu µs":       func(_ *Result, s *Summary) string { return digits3(s.CPU) },
	"READ":         func(_ *Result, s *Summary) string { return hundredths(s.Verbs.Read) },
	"x best":       func(_ *Result, s *Summary) string { return given(s.ReadsOverOptimum) },
	"x popular":    func(_ *Result, s *Summary) string { return given(s.ReadsOverPopular) },
	"WRITE":        func(_ *Result, s *Summary) string { return hundredths(s.Verbs.Write) },
	"log":          func(_ *Result, s *Summary) string { return hundredths(s.Verbs.Log) },
	"atomic":       func(_ *Result, s *Summary) string { return hundredths(s.Verbs.Atomic) },
	"rpc":          func(_ *Result, s *Summary) string { return digits3(s.Verbs.RPC) },
	"trips":        func(_ *Result, s *Summary) string { return hundredths(s.RoundTripsPerOp) },
	"bytes":        func(_ *Result, s *Summary) string { return fmt.Sprintf("%.0f", s.BytesPerOp) },
	"log bytes":    func(_ *Result, s *Summary) string { return fmt.Sprintf("%.0f", s.LogBytesPerOp) },
	"skew":         func(_ *Result, s *Summary) string { return digits3(s.Skew) },
	"retries":      func(r *Result, _ *Summary) string { return r.each(r.Stats.Retries) },
	"conflicts":    func(r *Result, _ *Summary) string { return r.each(r.Stats.LockConflicts) },
	"handovers":    func(r *Result, _ *Summary) string { return r.each(r.Stats.Handovers) },
	"delegated":    func(r *Result, _ *Summary) string { return r.percent(r.Stats.Delegated) },
	"combined":     func(r *Result, _ *Summary) string { return r.percent(r.Stats.Combined) },
	"hotspots":     func(r *Result, _ *Summary) string { return r.percent(r.Stats.SpeculatedRight) },
	"cache MiB":    func(_ *Result, s *Summary) string { return digits3(float64(s.CacheBytes) / (1 << 20)) },
	"hits":         func(_ *Result, s *Summary) string { return fmt.Sprintf("%.1f%%", 100*s.CacheHitRate) },
	"cache B/item": func(r *Result, _ *Summary) string { return digits3(r.cacheEach()) },
	"B/item":       func(_ *Result, s *Summary) string { return fmt.Sprintf("%.1f", s.MemoryBytesPerItem) },
	"NIC":          func(r *Result, _ *Summary) string { return r.nic() },
}

// columns reads a list of names of them.
func columns(list string) []string { return strings.Split(list, ",") }

// cells of a result's line in some columns.
func (r *Result) cells(names []string) []string {
	s, cells := r.Summary(), make([]string, len(names))
	for i, name := range names {
		cells[i] = resultColumns[name](r, &s)
	}
	return cells
}

// each is a count for an operation.
func (r *Result) each(n uint64) string { return digits3(float64(n) / float64(r.Ops)) }

// percent is a count of a hundred operations.
func (r *Result) percent(n uint64) string {
	return fmt.Sprintf("%.1f%%", 100*float64(n)/float64(r.Ops))
}

// cacheEach is the cache of a compute server for each item that was loaded.
func (r *Result) cacheEach() float64 {
	return float64(r.Stats.CacheBytes) / float64(r.Run.ComputeServers) / float64(r.Run.Records)
}

// nic is how busy NICs are; a dash where they are not simulated.
func (r *Result) nic() string {
	if r.Run.Transport != "sim" {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*r.occupancy())
}

func hundredths(v float64) string { return fmt.Sprintf("%.2f", v) }
