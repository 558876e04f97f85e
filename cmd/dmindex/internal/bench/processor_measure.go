package bench

import (
	"fmt"
	"time"
)

// scans that are measured: the time of a pair is what lies between.
const shortScan, longScan = 10, 210

// MeasureCosts is a line. measure gives the processor time of an operation of a workload, with a
// cache of so many percent, and its READs.
func MeasureCosts(measure func(workload string, percent float64, scan int) (time.Duration, float64, error)) (line DesignCosts, err error) {
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

// String is how the lines stand in processorTimes.
func (c DesignCosts) String() string {
	return fmt.Sprintf("\tcosts%v,\n\tcosts%v,\n", c.cached, c.uncached)
}

// String is how a line stands in the table.
func (c costs) String() string {
	return fmt.Sprintf("{%d, %d, %d, %d, %d}", c.lookup, c.change, c.insert, c.scan, c.pair)
}
