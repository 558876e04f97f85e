package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// crashFigure has a compute server die under each design, and says how long the others wait.
type crashFigure struct {
	name, title string
	workload    string
	runs        int // with different seeds: what the dead one had under way is chance
}

// noticed is how long nobody notices that a server is dead. In production that is what is left of
// its lease, 10 seconds by default, or less where the operator sees that its pod has ended. Here it
// is short: operations that wait for it wait the longer for as much.
const noticed = 10 * time.Millisecond

var fiveCrash = crashFigure{name: "five-crash", title: "All designs: a compute server dies under half updates", workload: "A", runs: 5}

// Sets implements Experiment.
func (f *crashFigure) Sets(flag string) bool { return setByAll(flag) }

// Defaults implements Experiment.
func (f *crashFigure) Defaults(base *Run, given func(flag string) bool) {
	defaults(base, given, fiveCluster.memory, fiveCluster.compute*fiveCluster.each, 200_000, 20_000)
	if !given("servers") {
		base.ComputeServers = fiveCluster.compute
	}
	if !given("warmup") {
		base.Warmup = 2 * base.Ops
	}
}

// Do implements Experiment.
func (f *crashFigure) Do(ctx context.Context, base Run, out io.Writer) (all []*Result, err error) {
	if base.ComputeServers < 2 {
		return nil, fmt.Errorf("--servers: %d compute server: one dies, and another one has to go on; give 2 or more", base.ComputeServers)
	}
	base.Transport, base.BulkLoad, base.CacheBytes = "sim", true, base.itemsShare(fiveShare)
	if base.Workload, err = LookupWorkload(f.workload); err == nil {
		base.Distribution, err = ParseDistribution(paperSkew)
	}
	if err != nil {
		return nil, err
	}
	title(out, base.Markdown, f.title)
	fmt.Fprintf(out, "%d memory servers, %d compute servers, %d clients, %d records, %d operations after %d to warm up, %d runs; the death is noticed after %v; simulated%s\n",
		base.MemoryServers, base.ComputeServers, base.Clients, base.Records, base.Ops, base.Warmup, f.runs, noticed, base.scaled())
	if base.Markdown {
		fmt.Fprintln(out)
	}
	w := newGrid(out, base.Markdown, "", "longest wait ms", "in the median run", "all keys served again ms", "waited in a run")
	for _, v := range everyDesign() {
		var longest, settled []time.Duration
		var waited uint64
		for i := range f.runs {
			r := base
			r.Design, r.Label, r.Seed = v.design, v.label, base.Seed+uint64(i)
			err := r.inCluster(ctx, func(b *bencher) error {
				c, err := b.doCrash(noticed)
				if err == nil {
					all, settled = append(all, c.Result), append(settled, c.settled)
					longest, waited = append(longest, c.Latency.quantile(1)), waited+c.Latency.above(noticed/10)
				}
				return err
			})
			if err != nil {
				return nil, err
			}
		}
		slices.Sort(longest)
		w.row(v.label, millis(longest[len(longest)-1]), millis(longest[len(longest)/2]), millis(slices.Max(settled)), digits3(float64(waited)/float64(f.runs)))
	}
	if err := w.end(); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "\nwaited in a run: operations that took longer than %v. A client that waits does nothing else, and a run ends soon after the death.\n", noticed/10)
	return all, nil
}

func millis(d time.Duration) string { return digits3(float64(d) / 1e6) }
