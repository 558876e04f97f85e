package bench

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
)

// TestProcessorTimeIsCharged: simulated operations take longer by what their design's line says, in
// proportion to the scale, whether they wait for the fabric or not.
func TestProcessorTimeIsCharged(t *testing.T) {
	const step = 10 * time.Microsecond // far more than the fabric's queues matter
	for _, c := range []struct {
		design, workload string
		cache            float64 // percent; 0 = no matter
		want             func(c *DesignCosts) time.Duration
	}{
		{"sherman", "C", 0, func(c *DesignCosts) time.Duration { return c.uncached.lookup }},
		{"dex", "C", 400, func(c *DesignCosts) time.Duration { return c.cached.lookup }},
		// it waits for its log
		{"dex", "write-only", 400, func(c *DesignCosts) time.Duration { return c.cached.change }},
		{"dex", "write-only", 1, func(c *DesignCosts) time.Duration { return c.uncached.change }},
		{"dex -offloading", "write-only", 1, func(c *DesignCosts) time.Duration { return c.uncached.change }},
		{"sherman", "range-only", 0, func(c *DesignCosts) time.Duration { return c.uncached.scan + 20*c.uncached.pair }},
	} {
		design, off, _ := strings.Cut(c.design, " -")
		defer func(old DesignCosts) { processorTimes[design] = old }(processorTimes[design])
		line := DesignCosts{costs{step, 2 * step, 3 * step, 4 * step, step / 10}, costs{5 * step, 6 * step, 7 * step, 8 * step, step / 5}}
		processorTimes[design] = line
		latency := func(scale float64) time.Duration {
			r := smallRun(t, c.workload, "sim")
			r.Design, r.Clients, r.ComputeServers, r.MemoryServers, r.ScanFrom, r.ScanTo, r.ProcessorScale = design, 1, 1, 1, 20, 20, scale
			if off != "" {
				r.Switches = map[string]bool{off: false}
			}
			if r.Records = 2000; c.cache > 0 { // and warmed up
				r.BulkLoad, r.CachePercent, r.Warmup = true, c.cache, 8000
			}
			return time.Duration(do(t, r).Latency.Quantile(0.5))
		}
		once, twice := latency(1), latency(2)
		if took, want := twice-once, c.want(&line); took < want*98/100 || took > want*102/100 {
			t.Errorf("%s, %s: the processor's part of an operation takes %v, want %v", c.design, c.workload, took, want)
		}
	}
}

// TestHalfOfTheTimeWaits: half of what an operation takes passes while it waits for the fabric, if
// it does, and the rest at its end: of what READs cost besides, too.
func TestHalfOfTheTimeWaits(t *testing.T) {
	const cached, uncached = 100, 300
	w := simenv.New(simenv.Options{})
	p := processor{world: w, costs: DesignCosts{costs{lookup: cached}, costs{lookup: uncached}}, scale: 1}
	err := w.Run(func(*simenv.Process) {
		for _, c := range []struct {
			what          string
			waits         []bool // for READs or not
			passed, atEnd time.Duration
		}{
			{"nothing", nil, 0, cached},
			{"a list without a READ", []bool{false}, cached / 2, cached / 2},
			{"a READ", []bool{true}, uncached / 2, uncached / 2},
			{"a list, then two READs", []bool{false, true, true}, uncached / 2, uncached / 2},
		} {
			p.begin(workload.NewOperation(workload.Lookup, 0, 0))
			var passed time.Duration
			for _, fetches := range c.waits {
				passed += w.Current().Pay(fetches)
			}
			if end := p.end(workload.NewOperation(workload.Lookup, 0, 0)); passed != c.passed || end != c.atEnd {
				t.Errorf("an operation that waits for %s: %d while it waits, %d at its end; want %d and %d", c.what, passed, end, c.passed, c.atEnd)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestProcessorTimeOfUnknownDesign: a design without a line is not simulated with somebody else's.
func TestProcessorTimeOfUnknownDesign(t *testing.T) {
	defer func(old DesignCosts) { processorTimes["sherman"] = old }(processorTimes["sherman"])
	delete(processorTimes, "sherman")
	if _, err := smallRun(t, "C", "sim").Do(t.Context()); err == nil || !strings.Contains(err.Error(), "--figure processor") {
		t.Errorf("%v, want an error that says how to measure it", err)
	}
}

// TestEveryDesignHasProcessorTimes: whatever is registered has a line.
func TestEveryDesignHasProcessorTimes(t *testing.T) {
	for _, name := range index.Names() {
		if _, ok := processorTimes[name]; !ok {
			t.Errorf("design %s has no line in processorTimes", name)
		}
	}
	for name, line := range processorTimes {
		for _, c := range []costs{line.cached, line.uncached} {
			if c.lookup <= 0 || c.change < c.lookup || c.insert < c.change || c.scan <= 0 || c.pair <= 0 {
				t.Errorf("the line of %s has %v", name, c)
			}
		}
		if c, u := line.cached, line.uncached; u.lookup < c.lookup || u.change < c.change || u.insert < c.insert || u.scan < c.scan || u.pair < c.pair {
			t.Errorf("the line of %s: %v from the cache take longer than %v", name, c, u)
		}
	}
}

// TestMeasuredCosts: what was measured of mixtures is taken apart.
func TestMeasuredCosts(t *testing.T) {
	line, err := MeasureCosts(func(workload string, percent float64, scan int) (time.Duration, float64, error) {
		small := percent < 100
		// three of four wait for the fabric
		cost := func(cached, uncached time.Duration) time.Duration {
			if small {
				return (cached + 3*uncached) / 4
			}
			return cached
		}
		reads := 0.0
		if small {
			reads = 0.75
		}
		switch workload {
		case "C":
			return cost(400, 2000), reads, nil
		case "A":
			return cost((400+1000)/2, (2000+3000)/2), reads, nil
		case "LOAD":
			return cost(4000, 6000), reads, nil
		}
		return cost(500, 900) + time.Duration(scan)*30, reads, nil
	})
	want := DesignCosts{costs{400, 1000, 4000, 500, 30}, costs{2000, 3000, 6000, 800, 30}}
	if err != nil || line != want {
		t.Errorf("%v, %v; want %v", line, err, want)
	}
	failed := errors.New("failed")
	if _, err := MeasureCosts(func(string, float64, int) (time.Duration, float64, error) { return 0, 0, failed }); !errors.Is(err, failed) {
		t.Errorf("%v, want %v", err, failed)
	}
}
