package bench

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"
)

// processorFigure measures the lines of processorTimes: one client, memory servers in this process,
// shared memory, so that an operation takes no more than processor time. Nothing else may run.
type processorFigure struct {
	variants []variant
}

// ProcessorFigure is what --figure calls it. It takes a design, and without one measures all.
const ProcessorFigure = "processor"

// processorMeasure is a line for each design, and for what is off of it.
var processorMeasure = processorFigure{variants: []variant{shermanVariant, uncached, dexVariant, smartVariant, chimeVariant, dolphinVariant}}

// repeats is of how many runs the shortest counts: what else uses the processors and their caches
// only ever adds to the time.
const repeats = 7

// Sets implements Experiment.
func (f *processorFigure) Sets(flag string) bool { return setByAll(flag) && flag != "design" }

// Defaults implements Experiment.
func (f *processorFigure) Defaults(base *Run, given func(flag string) bool) {
	defaults(base, given, 1, 1, 500_000, 200_000)
	if !given("warmup") {
		base.Warmup = base.Ops / 2
	}
}

// Do implements Experiment. It prints the lines as they stand in the table, in nanoseconds.
func (f *processorFigure) Do(ctx context.Context, base Run, out io.Writer) (all []*Result, err error) {
	fmt.Fprintf(out, "Processor time of an operation over shm, in ns: uniform keys, %d records, %d operations, the shortest of %d runs.\n"+
		"Columns: lookup, change, insert, scan, each of its pairs. First line: all in the cache; second: with a cache of 8%%, those with a READ or a call.\n\n", base.Records, base.Ops, repeats)
	base.Transport, base.BulkLoad = "shm", true
	if base.Distribution, err = ParseDistribution("uniform"); err != nil {
		return nil, err
	}
	for i := range f.variants {
		if base.Design != "" && base.Design != f.variants[i].design {
			continue
		}
		r := base
		r.Design, r.Switches = f.variants[i].design, f.variants[i].switches()
		measure := func(workload string, percent float64, scan int) (cpu time.Duration, reads float64, err error) {
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
				if one.Workload, err = LookupWorkload(workload); err != nil {
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
		line, err := measureCosts(measure)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(out, "%q: {\n\tcosts%v,\n\tcosts%v,\n},\n", r.costsName(), line.cached, line.uncached)
	}
	return all, nil
}

// scans that are measured: the time of a pair is what lies between.
const shortScan, longScan = 10, 210

// measureCosts is a line. measure gives the processor time of an operation of a workload, with a
// cache of so many percent, and its READs.
func measureCosts(measure func(workload string, percent float64, scan int) (time.Duration, float64, error)) (line designCosts, err error) {
	hits := 0.0 // of lookups
	at := func(workload string, percent float64, scan int) (cpu time.Duration) {
		if err != nil {
			return 0
		}
		var reads float64
		if cpu, reads, err = measure(workload, percent, scan); workload == "C" {
			hits = max(0, 1-reads)
		}
		return cpu
	}
	// all of what is in percent of the cache; of two kinds that come alike in A, one is known
	costsAt := func(percent float64) (c costs) {
		c.lookup = at("C", percent, 0)
		c.change = 2*at("A", percent, 0) - c.lookup
		c.insert = at("LOAD", percent, 0)
		short, long := at("range-only", percent, shortScan), at("range-only", percent, longScan)
		c.pair = (long - short) / (longScan - shortScan)
		c.scan = short - shortScan*c.pair
		return c
	}
	if line.cached = costsAt(300); hits < 0.5 { // it keeps no leaves
		line.uncached = line.cached
		return line, err
	}
	line.uncached = costsAt(8)
	for _, c := range []struct{ cached, mixed *time.Duration }{
		{&line.cached.lookup, &line.uncached.lookup}, {&line.cached.change, &line.uncached.change}, {&line.cached.insert, &line.uncached.insert},
	} {
		*c.mixed = max(*c.cached, time.Duration((float64(*c.mixed)-hits*float64(*c.cached))/(1-hits)))
	}
	line.uncached.scan, line.uncached.pair = max(line.cached.scan, line.uncached.scan), max(line.cached.pair, line.uncached.pair)
	return line, err
}

// String is how a line stands in the table.
func (c costs) String() string {
	return fmt.Sprintf("{%d, %d, %d, %d, %d}", c.lookup, c.change, c.insert, c.scan, c.pair)
}
