package papers

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
)

// processorFigure measures the lines of processorTimes: one client, memory servers in this process,
// shared memory, so that an operation takes no more than processor time. Nothing else may run.
type processorFigure struct {
	variants []variant
}

// ProcessorFigure is what --figure calls it. It takes a design, and without one measures all.
const ProcessorFigure = "processor"

// processorMeasure is a line for each design, and for what is off of it.
var processorMeasure = processorFigure{variants: []variant{shermanVariant, pShermanVariant, dexVariant, smartVariant, chimeVariant, dolphinVariant}}

// repeats is of how many runs the shortest counts: what else uses the processors and their caches
// only ever adds to the time.
const repeats = 7

// Sets implements Experiment.
func (f *processorFigure) Sets(flag string) bool { return setByAll(flag) && flag != "design" }

// Defaults implements Experiment.
func (f *processorFigure) Defaults(base *bench.Run, given func(flag string) bool) {
	defaults(base, given, 1, 1, 500_000, 200_000)
	if !given("warmup") {
		base.Warmup = base.Ops / 2
	}
}

// Do implements Experiment. It prints the lines as they stand in the table, in nanoseconds.
func (f *processorFigure) Do(ctx context.Context, base bench.Run, out io.Writer) (all []*bench.Result, err error) {
	fmt.Fprintf(out, "Processor time of an operation over shm, in ns: uniform keys, %d records, %d operations, the shortest of %d runs.\n"+
		"Columns: lookup, change, insert, scan, each of its pairs. First line: all in the cache; second: with a cache of 8%%, those with a READ or a call.\n\n", base.Records, base.Ops, repeats)
	base.Transport, base.BulkLoad = "shm", true
	if base.Distribution, err = workload.ParseDistribution("uniform"); err != nil {
		return nil, err
	}
	for i := range f.variants {
		if base.Design != "" && base.Design != f.variants[i].design {
			continue
		}
		r := base
		r.Design, r.Switches = f.variants[i].design, f.variants[i].switches()
		measure := func(name string, percent float64, scan int) (cpu time.Duration, reads float64, err error) {
			shortest := time.Duration(math.MaxInt64)
			for range repeats {
				one := r
				if scan > 0 {
					one.Ops, one.Warmup = max(1, r.Ops/10), r.Warmup/10
				}
				one.CachePercent, one.CacheBytes = percent, 0
				if scan > 0 {
					one.ScanFrom, one.ScanTo = scan, scan
				}
				if one.Workload, err = workload.ByName(name); err != nil {
					return 0, 0, err
				}
				res, err := one.Do(ctx)
				if err != nil {
					return 0, 0, err
				}
				all = append(all, res)
				shortest, reads = min(shortest, res.CPU/time.Duration(one.Ops)), res.Summary().Verbs.Read
			}
			return shortest, reads, nil
		}
		line, err := bench.MeasureCosts(measure)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(out, "%q: {\n%v},\n", r.Design, line)
	}
	return all, nil
}
