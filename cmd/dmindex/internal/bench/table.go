package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"maps"
)

// WriteTable writes a line for each result. docs/evaluation.md says what the columns mean.
func WriteTable(out io.Writer, results []*Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "design\ttransport\tworkload\tkeys\tclients\tMop/s\tp50 us\tp99 us\tp999 us\tREAD\tWRITE\tatomic\trpc\ttrips\tbytes\tretries\tconflicts\tcache MiB\thits\tB/item\t")
	for _, r := range results {
		s, ops := r.Summary(), float64(r.Ops)
		name := s.Design
		for _, n := range slices.Sorted(maps.Keys(s.Switches)) {
			name += map[bool]string{true: " +", false: " -"}[s.Switches[n]] + n
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%.4g\t%s\t%s\t%s\t%.2f\t%.2f\t%.2f\t%.1g\t%.2f\t%.0f\t%.3g\t%.3g\t%.1f\t%.1f%%\t%.1f\t\n",
			name, s.Transport, s.Workload, s.Distribution, s.Clients, s.Throughput/1e6, micros(s.P50), micros(s.P99), micros(s.P999),
			s.Verbs.Read, s.Verbs.Write, s.Verbs.Atomic, s.Verbs.RPC, s.RoundTripsPerOp, s.BytesPerOp,
			float64(r.Stats.Retries)/ops, float64(r.Stats.LockConflicts)/ops, float64(s.CacheBytes)/(1<<20), 100*s.CacheHitRate, s.MemoryBytesPerItm)
	}
	return w.Flush()
}

// micros shows three digits of a time in microseconds.
func micros(us float64) string {
	text := fmt.Sprintf("%.3g", us)
	if strings.Contains(text, "e") {
		return fmt.Sprintf("%.0f", us)
	}
	return text
}
