package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// runColumns are those of a table of runs.
var runColumns = columns("design,transport,workload,keys,clients,Mop/s,p50 µs,p99 µs,p999 µs,cpu µs,READ,x best,x popular,WRITE,log,atomic,rpc,trips,bytes,skew,retries,conflicts,handovers,cache MiB,hits,B/item")

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
	w := newGrid(out, markdown, runColumns...)
	for _, r := range results {
		w.row(r.cells(runColumns)...)
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
