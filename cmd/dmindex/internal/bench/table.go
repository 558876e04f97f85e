package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// columns of the table. docs/benchmarks/README.md says what they mean.
var columns = strings.Split("design,transport,workload,keys,clients,Mop/s,p50 µs,p99 µs,p999 µs,cpu µs,READ,x best,x popular,WRITE,log,atomic,rpc,trips,bytes,skew,retries,conflicts,handovers,cache MiB,hits,B/item", ",")

// cells of a result's line.
func (r *Result) cells() []string {
	s, ops := r.Summary(), float64(r.Ops)
	return []string{
		r.name(), s.Transport, s.Workload, s.Distribution, fmt.Sprint(s.Clients),
		fmt.Sprintf("%.4g", s.Throughput/1e6), digits3(s.P50), digits3(s.P99), digits3(s.P999), digits3(float64(r.CPU) / ops / 1e3),
		fmt.Sprintf("%.2f", s.Verbs.Read), given(s.ReadsOverOptimum), given(s.ReadsOverPopular), fmt.Sprintf("%.2f", s.Verbs.Write), fmt.Sprintf("%.2f", s.Verbs.Log), fmt.Sprintf("%.2f", s.Verbs.Atomic), digits3(s.Verbs.RPC),
		fmt.Sprintf("%.2f", s.RoundTripsPerOp), fmt.Sprintf("%.0f", s.BytesPerOp), digits3(s.Skew),
		digits3(float64(r.Stats.Retries) / ops), digits3(float64(r.Stats.LockConflicts) / ops), digits3(float64(r.Stats.Handovers) / ops),
		digits3(float64(s.CacheBytes) / (1 << 20)), fmt.Sprintf("%.1f%%", 100*s.CacheHitRate), fmt.Sprintf("%.1f", s.MemoryBytesPerItem),
	}
}

// name is the run's label, or the design and what is off of it.
func (r *Result) name() string {
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

// setting is what the results of one call have in common.
func (r *Run) setting() string {
	keys := fmt.Sprintf("text keys of %d bytes", r.KeyBytes)
	if r.Uint64 {
		keys = "uint64 keys"
	}
	return fmt.Sprintf("%d records with %s and values of %d bytes; %d memory servers, %d compute servers; %d operations after %d to warm up; seed %d",
		r.Records, keys, r.ValueBytes, r.MemoryServers, r.ComputeServers, r.Ops, r.Warmup, r.Seed)
}

// WriteTable writes the setting and a line for each result.
func WriteTable(out io.Writer, results []*Result) error {
	fmt.Fprintln(out, results[0].Run.setting())
	markdown := results[0].Run.Markdown
	if markdown {
		fmt.Fprintln(out)
	}
	w := newGrid(out, markdown, columns...)
	for _, r := range results {
		w.row(r.cells()...)
	}
	return w.end()
}

// digits3 shows three digits of a number, never with an exponent.
func digits3(v float64) string {
	switch text := fmt.Sprintf("%.3g", v); {
	case v != 0 && v < 1e-4:
		return "<0.0001"
	case strings.Contains(text, "e"):
		return fmt.Sprintf("%.0f", v)
	default:
		return text
	}
}
