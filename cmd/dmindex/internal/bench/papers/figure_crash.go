package papers

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/report"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
)

// crashFigure has a compute server die under each design, and says how long the others wait.
type crashFigure struct {
	name, title   string
	workload      string
	distributions []string
	runs          int // with different seeds: what the dead one had under way is chance
}

// noticed is how long nobody notices that a server is dead. In production that is what is left of
// its lease, 10 seconds by default, or less where the operator sees that its pod has ended. Here it
// is short: operations that wait for it wait the longer for as much.
const noticed = 10 * time.Millisecond

var fiveCrash = crashFigure{name: "five-crash", title: "All designs: a compute server dies under half updates", workload: "A", distributions: []string{paperSkew, "uniform"}, runs: 5}

// Sets implements Experiment.
func (f *crashFigure) Sets(flag string) bool { return setByAll(flag) }

// Defaults implements Experiment.
func (f *crashFigure) Defaults(base *bench.Run, given func(flag string) bool) {
	defaults(base, given, fiveCluster.memory, fiveCluster.compute*fiveCluster.each, 200_000, 20_000)
	if !given("servers") {
		base.ComputeServers = fiveCluster.compute
	}
	if !given("warmup") {
		base.Warmup = 2 * base.Ops
	}
}

// Do implements Experiment.
func (f *crashFigure) Do(ctx context.Context, base bench.Run, out io.Writer) (all []*bench.Result, err error) {
	if base.ComputeServers < 2 {
		return nil, fmt.Errorf("--servers: %d compute server: one dies, and another one has to go on; give 2 or more", base.ComputeServers)
	}
	base.Transport, base.BulkLoad, base.CacheBytes = "sim", true, base.ItemsShare(fiveShare)
	if base.Workload, err = workload.ByName(f.workload); err != nil {
		return nil, err
	}
	report.Title(out, base.Markdown, f.title)
	fmt.Fprintf(out, "%d memory servers, %d compute servers, %d clients, %d records, %d operations after %d to warm up, %d runs; the death is noticed after %v; simulated%s\n",
		base.MemoryServers, base.ComputeServers, base.Clients, base.Records, base.Ops, base.Warmup, f.runs, noticed, base.ModelChanges())
	if base.Markdown {
		fmt.Fprintln(out)
	}
	w := report.NewGrid(out, base.Markdown, "keys", "", "longest wait ms", "in the median run", "all keys served again ms", "waited in a run")
	for _, keys := range f.distributions {
		if base.Distribution, err = workload.ParseDistribution(keys); err != nil {
			return nil, err
		}
		for _, v := range everyDesign() {
			results, settled, err := f.repeat(ctx, base, v)
			if err != nil {
				return nil, err
			}
			all = append(all, results...)
			var longest []time.Duration
			var waited uint64
			for _, res := range results {
				longest, waited = append(longest, res.Latency.Quantile(1)), waited+res.Latency.Above(noticed/10)
			}
			slices.Sort(longest)
			w.Row(keys, v.label, millis(longest[len(longest)-1]), millis(longest[len(longest)/2]), millis(settled), report.Digits3(float64(waited)/float64(f.runs)))
		}
	}
	if err := w.End(); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "\nwaited in a run: operations that took longer than %v. A client that waits does nothing else, and a run ends soon after the death.\n", noticed/10)
	return all, nil
}

// repeat lets a server die once for each seed. settled is the longest time until all keys were
// served again.
func (f *crashFigure) repeat(ctx context.Context, base bench.Run, v variant) (all []*bench.Result, settled time.Duration, err error) {
	for i := range f.runs {
		r := base
		r.Design, r.Label, r.Seed = v.design, v.label, base.Seed+uint64(i)
		c, err := r.DoCrash(ctx, noticed)
		if err != nil {
			return nil, 0, err
		}
		all, settled = append(all, c.Result), max(settled, c.Settled)
	}
	return all, settled, nil
}

func millis(d time.Duration) string { return report.Digits3(float64(d) / 1e6) }
