package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench"
)

// runColumns are those of a table of runs.
var runColumns = Columns("design,transport,workload,keys,clients,Mop/s,p50 µs,p99 µs,p999 µs,cpu µs,READ,x best,x popular,WRITE,log,atomic,rpc,trips,bytes,skew,retries,conflicts,handovers,cache MiB,hits,B/item")

// settingOf is what the results of one call have in common.
func settingOf(r *bench.Run) string {
	keys := fmt.Sprintf("text keys of %d bytes", r.KeyBytes)
	if r.Uint64 {
		keys = "uint64 keys"
	}
	return fmt.Sprintf("%d records with %s and values of %d bytes; %d memory servers, %d compute servers; %d operations after %d to warm up; seed %d",
		r.Records, keys, r.ValueBytes, r.MemoryServers, r.ComputeServers, r.Ops, r.Warmup, r.Seed)
}

// WriteTable writes the setting and a line for each result.
func WriteTable(out io.Writer, results []*bench.Result) error {
	fmt.Fprintln(out, settingOf(results[0].Run))
	markdown := results[0].Run.Markdown
	if markdown {
		fmt.Fprintln(out)
	}
	w := NewGrid(out, markdown, runColumns...)
	for _, r := range results {
		w.Row(Cells(r, runColumns)...)
	}
	return w.End()
}

// Digits3 shows three digits of a number, never with an exponent.
func Digits3(v float64) string {
	switch text := fmt.Sprintf("%.3g", v); {
	case v != 0 && v < 1e-4:
		return "<0.0001"
	case strings.Contains(text, "e"):
		return fmt.Sprintf("%.0f", v)
	default:
		return text
	}
}
