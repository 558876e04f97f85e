package report

import (
	"fmt"
	"strings"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench"
)

// resultColumns are the columns of tables that have a line for each result.
// docs/benchmarks/README.md says what they mean.
var resultColumns = map[string]func(r *bench.Result, s *bench.Summary) string{
	"design":       func(r *bench.Result, _ *bench.Summary) string { return r.Name() },
	"transport":    func(_ *bench.Result, s *bench.Summary) string { return s.Transport },
	"workload":     func(_ *bench.Result, s *bench.Summary) string { return s.Workload },
	"keys":         func(_ *bench.Result, s *bench.Summary) string { return s.Distribution },
	"clients":      func(_ *bench.Result, s *bench.Summary) string { return fmt.Sprint(s.Clients) },
	"Mop/s":        func(_ *bench.Result, s *bench.Summary) string { return fmt.Sprintf("%.4g", s.Throughput/1e6) },
	"p50 µs":       func(_ *bench.Result, s *bench.Summary) string { return Digits3(s.P50) },
	"p99 µs":       func(_ *bench.Result, s *bench.Summary) string { return Digits3(s.P99) },
	"p999 µs":      func(_ *bench.Result, s *bench.Summary) string { return Digits3(s.P999) },
	"cpu µs":       func(_ *bench.Result, s *bench.Summary) string { return Digits3(s.CPU) },
	"READ":         func(_ *bench.Result, s *bench.Summary) string { return hundredths(s.Verbs.Read) },
	"x best":       func(_ *bench.Result, s *bench.Summary) string { return OrDash(s.ReadsOverOptimum) },
	"x popular":    func(_ *bench.Result, s *bench.Summary) string { return OrDash(s.ReadsOverPopular) },
	"WRITE":        func(_ *bench.Result, s *bench.Summary) string { return hundredths(s.Verbs.Write) },
	"log":          func(_ *bench.Result, s *bench.Summary) string { return hundredths(s.Verbs.Log) },
	"atomic":       func(_ *bench.Result, s *bench.Summary) string { return hundredths(s.Verbs.Atomic) },
	"rpc":          func(_ *bench.Result, s *bench.Summary) string { return Digits3(s.Verbs.RPC) },
	"trips":        func(_ *bench.Result, s *bench.Summary) string { return hundredths(s.RoundTripsPerOp) },
	"bytes":        func(_ *bench.Result, s *bench.Summary) string { return fmt.Sprintf("%.0f", s.BytesPerOp) },
	"log bytes":    func(_ *bench.Result, s *bench.Summary) string { return fmt.Sprintf("%.0f", s.LogBytesPerOp) },
	"skew":         func(_ *bench.Result, s *bench.Summary) string { return Digits3(s.Skew) },
	"retries":      func(r *bench.Result, _ *bench.Summary) string { return perOp(r, r.Stats.Retries) },
	"conflicts":    func(r *bench.Result, _ *bench.Summary) string { return perOp(r, r.Stats.LockConflicts) },
	"handovers":    func(r *bench.Result, _ *bench.Summary) string { return perOp(r, r.Stats.Handovers) },
	"delegated":    func(r *bench.Result, _ *bench.Summary) string { return perHundred(r, r.Stats.Delegated) },
	"combined":     func(r *bench.Result, _ *bench.Summary) string { return perHundred(r, r.Stats.Combined) },
	"hotspots":     func(r *bench.Result, _ *bench.Summary) string { return perHundred(r, r.Stats.SpeculatedRight) },
	"cache MiB":    func(_ *bench.Result, s *bench.Summary) string { return Digits3(float64(s.CacheBytes) / (1 << 20)) },
	"hits":         func(_ *bench.Result, s *bench.Summary) string { return fmt.Sprintf("%.1f%%", 100*s.CacheHitRate) },
	"cache B/item": func(r *bench.Result, _ *bench.Summary) string { return Digits3(r.CachePerItem()) },
	"B/item":       func(_ *bench.Result, s *bench.Summary) string { return fmt.Sprintf("%.1f", s.MemoryBytesPerItem) },
	"NIC":          func(r *bench.Result, _ *bench.Summary) string { return nicLoad(r) },
}

// Columns reads a list of names of them.
func Columns(list string) []string { return strings.Split(list, ",") }

// Cells of a result's line in some columns.
func Cells(r *bench.Result, names []string) []string {
	s, row := r.Summary(), make([]string, len(names))
	for i, name := range names {
		row[i] = resultColumns[name](r, &s)
	}
	return row
}

// perOp is a count for an operation.
func perOp(r *bench.Result, n uint64) string { return Digits3(float64(n) / float64(r.Ops)) }

// perHundred is a count of a hundred operations.
func perHundred(r *bench.Result, n uint64) string {
	return fmt.Sprintf("%.1f%%", 100*float64(n)/float64(r.Ops))
}

// nicLoad is how busy NICs are; a dash where they are not simulated.
func nicLoad(r *bench.Result) string {
	if r.Run.Transport != "sim" {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*r.Occupancy())
}

func hundredths(v float64) string { return fmt.Sprintf("%.2f", v) }

// OrDash is a figure of the paper, or a dash.
func OrDash(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}
