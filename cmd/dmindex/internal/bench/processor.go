package bench

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
	"github.com/dmindex/dmindex/pkg/env/simenv"
)

// In simulated time an operation takes what the fabric takes, and besides what its client's
// processor was measured to take: for kinds of operations, and apart for those that found all they
// needed in the cache. That is those without a READ, and without a call: a change may still have
// waited for its log. The fabric's model has the processor time of a list (post and poll).
//
// Of an operation that waits for the fabric half of this time passes when that has answered: half
// of what it takes in any case with the first list, half of what READs cost besides with the first
// READ. So for a change it lies within the time that a lock is held. The rest passes at its end.

// costs is the processor time of operations of each kind.
type costs struct {
	lookup, change, insert time.Duration
	scan, pair             time.Duration // a scan without its pairs, and each pair
}

// DesignCosts is a design's line: of operations that had all they needed in the cache, and of those
// that READ at least once, or called.
type DesignCosts struct{ cached, uncached costs }

// processorTimes are the lines, by design. They were measured by
//
//	dmindex bench --figure processor [--design NAME]
//
// on shm, with one client, memory servers in the same process, and uniform keys. All of them but
// Dolphin's and P-Sherman's come from one run, 2026-11-27, 500,000 records, with no other work
// beside it. Dolphin's was measured in turn with Sherman's and SMART's, 2026-11-28, with other work
// beside all of them, and is what it took over theirs, times theirs here. P-Sherman's is Sherman's,
// whose code it is, but for scans: in turn with that, 2026-11-30, with other work beside both, a
// scan took 18% more, and all else differed by no more than the runs did. A new design needs its
// own line, and all lines are best those of one run.
var processorTimes = map[string]DesignCosts{
	"sherman": { // never without a READ
		costs{314, 748, 1523, 807, 23},
		costs{314, 748, 1523, 807, 23},
	},
	"p-sherman": { // never without a READ
		costs{314, 748, 1523, 952, 23},
		costs{314, 748, 1523, 952, 23},
	},
	"dex": {
		costs{269, 783, 2096, 1147, 31},
		costs{1293, 3507, 3638, 1258, 31},
	},
	"smart": { // never without a READ
		costs{714, 1006, 1202, 3575, 146},
		costs{714, 1006, 1202, 3575, 146},
	},
	"chime": { // never without a READ
		costs{561, 901, 2235, 4279, 94},
		costs{561, 901, 2235, 4279, 94},
	},
	"dolphin": { // never without a READ
		costs{430, 540, 1500, 1240, 30},
		costs{430, 540, 1500, 1240, 30},
	},
}

// CostLines are the names of all lines.
func CostLines() []string { return slices.Sorted(maps.Keys(processorTimes)) }

// processor charges clients of the simulated cluster for their operations.
type processor struct {
	world *simenv.World
	costs DesignCosts
	scale float64
}

func newProcessor(w *simenv.World, r *Run) (*processor, error) {
	name := r.Design
	c, ok := processorTimes[name]
	if !ok {
		return nil, fmt.Errorf("the processor time of operations of %s is not known: measure it with --figure processor, and add the line to processorTimes", name)
	}
	return &processor{world: w, costs: c, scale: r.ProcessorFactor()}, nil
}

// ProcessorFactor is how many times the measured processor time operations take.
func (r *Run) ProcessorFactor() float64 {
	if r.ProcessorScale == 0 {
		return 1
	}
	return r.ProcessorScale
}

// ModelChanges says what is not as the model has it.
func (r *Run) ModelChanges() (text string) {
	if r.ProcessorFactor() != 1 {
		text = fmt.Sprintf("; processor time times %g", r.ProcessorFactor())
	}
	if r.MessageRate != 0 {
		text += fmt.Sprintf("; %g million messages a second for each memory server's NIC", r.MessageRate)
	}
	return text
}

// of is what o costs.
func (c *costs) of(o workload.Operation) time.Duration {
	switch o.Kind() {
	case workload.Lookup:
		return c.lookup
	case workload.Insert:
		return c.insert
	case workload.Modify:
		return c.lookup + c.change
	case workload.Scan:
		return c.scan + time.Duration(o.Length())*c.pair
	}
	return c.change
}

// time is scaled.
func (p *processor) time(d time.Duration) time.Duration { return time.Duration(float64(d) * p.scale) }

// begin is when the client whose goroutine calls it begins o.
func (p *processor) begin(o workload.Operation) {
	p.world.Current().Owe(p.owed(o))
}

// owed is the half of what o costs that passes while it waits.
func (p *processor) owed(o workload.Operation) simenv.Owed {
	cached, uncached := p.costs.cached.of(o), p.costs.uncached.of(o)
	return simenv.Owed{Answered: p.time(cached / 2), Fetched: p.time((uncached - cached) / 2)}
}

// end is when o is over. It returns what its client has still to spend.
func (p *processor) end(o workload.Operation) time.Duration {
	owed, left := p.owed(o), p.world.Current().Owe(simenv.Owed{})
	whole := p.time(p.costs.uncached.of(o))
	if left.Fetched > 0 {
		whole = p.time(p.costs.cached.of(o))
	}
	return whole - (owed.Answered - left.Answered) - (owed.Fetched - left.Fetched)
}
