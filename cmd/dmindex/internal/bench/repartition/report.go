package repartition

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/report"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/local"
)

// movesOf is how many ranges changed hands.
func movesOf(s *local.Scaled) (n int) {
	for _, stage := range s.Stages {
		n += len(stage.Moves)
	}
	return n
}

// rate of a slice, in operations a second.
func rate(ops uint64) float64 { return float64(ops) / SliceLength.Seconds() }

// mean rate of the slices from one time up to another.
func (r *Result) mean(from, to time.Duration) float64 {
	a, b := min(int(from/SliceLength), len(r.Slices)), min(int(to/SliceLength), len(r.Slices))
	if a >= b {
		return 0
	}
	sum := uint64(0)
	for _, n := range r.Slices[a:b] {
		sum += n
	}
	return rate(sum) / float64(b-a)
}

// before is the rate before the change, after that of the last second, lowest that of the worst
// slice from the change until a second after its end.
func (r *Result) before() float64 { return r.mean(0, r.At) }
func (r *Result) after() float64 {
	end := time.Duration(len(r.Slices)) * SliceLength
	return r.mean(max(0, end-time.Second), end)
}

func (r *Result) lowest() float64 {
	low := math.Inf(1)
	for i := int(r.At / SliceLength); i < len(r.Slices) && i <= int((r.At+r.Scaled.Took+time.Second)/SliceLength); i++ {
		low = min(low, rate(r.Slices[i]))
	}
	if math.IsInf(low, 1) {
		return 0
	}
	return low
}

// recovery is how long after the change began throughput is back: from the first quarter of a
// second on that has 90 % of the rate before, and begins after the last range moved.
func (r *Result) recovery() time.Duration {
	const window = 250 * time.Millisecond
	for at := r.At + r.Scaled.Took; int((at+window)/SliceLength) <= len(r.Slices); at += SliceLength {
		if r.mean(at, at+window) >= 0.9*r.before() {
			return at - r.At
		}
	}
	return 0
}

// WriteTable writes a line for each run.
func WriteTable(out io.Writer, results []*Result) error {
	r := results[0].Run
	fmt.Fprintf(out, "%s over %s: from %d to %d compute servers, %d memory servers; %d records, %s; %d clients with batches of %d, half of which write\n",
		r.Design, r.Transport, r.From, r.From+1, r.MemoryServers, r.Records, r.Distribution, r.Clients, r.Batch)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "cache of each\tranges\tmoved in s\tback after s\tkop/s before\tlowest\tafter\tbatches\tfailed\tlongest s\tchecked\tcaches MiB\thits %\t")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%d\t%.3f\t%.2f\t%.1f\t%.1f\t%.1f\t%d\t%d\t%.3f\t%d\t%.0f\t%.1f\t\n", bench.FormatBytes(uint64(r.Run.CacheBytes)), movesOf(&r.Scaled), r.Scaled.Took.Seconds(), r.Recovered.Seconds(),
			r.before()/1e3, r.lowest()/1e3, r.after()/1e3, r.Batches, r.Failed, r.Longest.Seconds(), r.Checked, float64(r.CacheUsed)/(1<<20), 100*r.HitRatio)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		if r.FirstErr != nil {
			fmt.Fprintf(out, "cache of %s: the first of %d failed batches: %v\n", bench.FormatBytes(uint64(r.Run.CacheBytes)), r.Failed, r.FirstErr)
		}
	}
	return nil
}

// repartitionJSON is a run as it is reported.
type repartitionJSON struct {
	Design     string    `json:"design"`
	Transport  string    `json:"transport"`
	From       int       `json:"compute_servers_before"`
	Records    uint64    `json:"records"`
	CacheBytes int       `json:"cache_bytes"` // of each compute server
	Clients    int       `json:"clients"`
	Batch      int       `json:"batch"`
	Ranges     int       `json:"ranges_moved"`
	Took       float64   `json:"repartition_seconds"`
	Stages     []float64 `json:"stages_begin_seconds"` // one new map each, since the first
	Recovered  float64   `json:"recovered_seconds"`    // 0 = throughput was not back in time
	At         float64   `json:"begins_at_seconds"`
	Before     float64   `json:"throughput_before_ops"`
	Lowest     float64   `json:"throughput_lowest_ops"`
	After      float64   `json:"throughput_after_ops"`
	Batches    uint64    `json:"batches"`
	Failed     uint64    `json:"failed_batches"`
	Longest    float64   `json:"longest_batch_seconds"`
	Checked    uint64    `json:"items_checked"`
	// of all compute servers together, before the change
	CacheUsed   uint64    `json:"caches_used_bytes"`
	HitRatio    float64   `json:"hit_ratio"` // of operations before the change
	SliceLength float64   `json:"slice_seconds"`
	Slices      []float64 `json:"throughput_ops"` // of each slice
}

// WriteJSON writes {"repartitions": [...]}.
func WriteJSON(out io.Writer, results []*Result) error {
	list := make([]repartitionJSON, len(results))
	for i, r := range results {
		j := repartitionJSON{
			Design: r.Run.Design, Transport: r.Run.Transport, From: r.Run.From, Records: r.Run.Records, CacheBytes: r.Run.CacheBytes, Clients: r.Run.Clients, Batch: r.Run.Batch,
			Ranges: movesOf(&r.Scaled), Took: r.Scaled.Took.Seconds(), Recovered: r.Recovered.Seconds(), At: r.At.Seconds(), Before: r.before(), Lowest: r.lowest(), After: r.after(),
			Batches: r.Batches, Failed: r.Failed, Longest: r.Longest.Seconds(), Checked: r.Checked, CacheUsed: r.CacheUsed, HitRatio: r.HitRatio, SliceLength: SliceLength.Seconds(), Slices: []float64{},
		}
		for _, stage := range r.Scaled.Stages {
			j.Stages = append(j.Stages, stage.At.Seconds())
		}
		for _, n := range r.Slices {
			j.Slices = append(j.Slices, rate(n))
		}
		list[i] = j
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(map[string]any{"repartitions": list})
}

// WriteHTML writes a page with throughput over time.
func WriteHTML(out io.Writer, results []*Result) error {
	var b strings.Builder
	report.PageHead(&b)
	var table strings.Builder
	if err := WriteTable(&table, results); err != nil {
		return err
	}
	report.Section(&b, "Throughput while a compute server comes", "Operations that were answered, in slices of "+SliceLength.String()+". Dashed: when the first range began to move, and when the last one had.")
	d := &report.Plot{Title: "from " + fmt.Sprint(results[0].Run.From) + " to " + fmt.Sprint(results[0].Run.From+1) + " compute servers"}
	longest, most := 0.0, 0.0
	for _, r := range results {
		s := report.Series{Name: "caches of " + bench.FormatBytes(uint64(r.Run.CacheBytes))}
		for i, n := range r.Slices {
			x := (time.Duration(i)*SliceLength + SliceLength/2).Seconds()
			s.Points = append(s.Points, [2]float64{x, rate(n) / 1e3})
			longest, most = math.Max(longest, x), math.Max(most, rate(n)/1e3)
		}
		d.Series = append(d.Series, s)
	}
	for _, r := range results {
		d.Marks = append(d.Marks, r.At.Seconds(), (r.At + r.Scaled.Took).Seconds())
	}
	d.X, d.Y = report.Linear("time (s)", longest), report.Linear("throughput (thousand operations/s)", most)
	d.SVG(&b)
	fmt.Fprintf(&b, "</div>\n<h2>Figures</h2>\n<div class=\"wide\"><pre>%s</pre></div>\n</body>\n</html>\n", html.EscapeString(table.String()))
	_, err := io.WriteString(out, b.String())
	return err
}
