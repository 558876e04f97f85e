package bench

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// Comparison is an experiment of a paper that compares designs, or a design with techniques off, at
// one or several settings. Its table has a line for each of them at each setting.
type Comparison struct {
	Name, title string
	cluster     clusterSize
	records     uint64
	ops, warmup int
	// of each compute server in MB for 60 million records, as the papers give it; 0 = the designs'
	// default, which holds all inner nodes of so few records
	cache float64
	// LOAD is measured over as many insertions as there are records. Leaves of a bulk load are all
	// as full as each other, so in less than that those of one design may all be about to split,
	// and those of another one far from it.
	doubles  bool
	variants []variant
	settings []setting // none = one, that of the fields above
	parts    []comparedPart
	notes    []string
}

// clusterSize is how many servers of each kind there are, and clients on each compute server.
type clusterSize struct{ memory, compute, each int }

// setting is what differs from the experiment's other settings.
type setting struct {
	label  string
	change func(r *Run)
}

// comparedPart is one workload of a comparison.
type comparedPart struct {
	name         string // "" = the workload's
	workload     string
	distribution string
	// of the paper, by variant: its throughput over that of the first variant, at the last setting;
	// 0 = it does not say
	claims []float64
}

// paperRecords is how many records the papers of SMART and CHIME have.
const paperRecords = 60_000_000

// likePaper is a 256th of them. A radix tree over so many hashed keys of 8 bytes has one level less
// than one over 60 million, and else the same shape: as many children of each node below.
const likePaper = paperRecords / 256

// scaledCache is a cache of so many MB for the papers' records, in proportion to ours.
func scaledCache(mb float64, records uint64) int {
	return max(1, int(mb*1e6*float64(records)/paperRecords))
}

// What settings change.

func withCache(mb float64) setting {
	return setting{fmt.Sprintf("%g MB", mb), func(r *Run) { r.CacheBytes = scaledCache(mb, r.Records) }}
}

func withEach(n int) setting {
	return setting{fmt.Sprintf("%d clients", n), func(r *Run) { r.Clients = n * r.ComputeServers }}
}

func withKeys(n int) setting {
	return setting{fmt.Sprintf("keys of %d B", n), func(r *Run) { r.KeyBytes, r.Uint64 = n, n == 8 }}
}

func withValues(n int) setting {
	return setting{fmt.Sprintf("values of %d B", n), func(r *Run) { r.ValueBytes = n }}
}

func withMemory(n int) setting {
	return setting{fmt.Sprintf("%d memory servers", n), func(r *Run) { r.MemoryServers = n }}
}

func withRecords(millions float64) setting {
	return setting{fmt.Sprintf("%g million", millions), func(r *Run) { r.Records = uint64(millions * 1e6 / 256) }}
}

func withTheta(theta float64) setting {
	return setting{fmt.Sprintf("zipfian:%g", theta), func(r *Run) { r.Distribution = Distribution{theta: theta, ranks: 1e9} }}
}

func withRanks(n uint64) setting {
	return setting{fmt.Sprintf("%.3g million ranks", float64(n)/1e6), func(r *Run) { r.Distribution.ranks = n }}
}

// all is several changes.
func all(list ...setting) setting {
	labels := make([]string, len(list))
	for i, s := range list {
		labels[i] = s.label
	}
	return setting{strings.Join(labels, ", "), func(r *Run) {
		for _, s := range list {
			s.change(r)
		}
	}}
}

// Defaults implements Experiment.
func (c *Comparison) Defaults(base *Run, given func(flag string) bool) {
	records, ops := c.records, c.ops
	if records == 0 {
		records = likePaper
	}
	if ops == 0 {
		ops = 40_000
	}
	defaults(base, given, c.cluster.memory, c.cluster.compute*c.cluster.each, records, ops)
	if !given("servers") {
		base.ComputeServers = c.cluster.compute
	}
	if !given("warmup") {
		base.Warmup = c.warmup
	}
}

// run is the run of a part, with a variant, at a setting.
func (c *Comparison) run(base Run, p *comparedPart, v *variant, s *setting) (*Run, error) {
	r := base
	r.Label, r.Design, r.Transport, r.BulkLoad, r.Switches = v.label, v.design, "sim", true, v.switches()
	r.CachePercent, r.CacheBytes, r.NodeBytes, r.Neighbourhood = 0, 0, v.node, v.hood
	var err error
	if r.Workload, err = LookupWorkload(p.workload); err == nil {
		r.Distribution, err = ParseDistribution(p.distribution)
	}
	if r.Workload.share[lookup]+r.Workload.share[update]+r.Workload.share[scan] == 0 {
		r.Warmup = min(r.Warmup, r.Ops/2) // there is no reading that could warm a cache
		if c.doubles {
			r.Ops = int(r.Records)
		}
	}
	if s.change != nil {
		s.change(&r)
	}
	mb := c.cache
	if v.cache > 0 {
		mb = v.cache
	}
	if mb > 0 && r.CacheBytes == 0 {
		r.CacheBytes = scaledCache(mb, r.Records)
	}
	if v.allCached { // each inner node has to be seen once
		r.CacheBytes, r.Warmup = 0, 4*r.Warmup
	}
	return &r, err
}

// Do does the experiment again and writes our figures beside the paper's. base says all of a run
// that the comparison does not.
func (c *Comparison) Do(ctx context.Context, base Run, out io.Writer) (all []*Result, err error) {
	settings := c.settings
	if len(settings) == 0 {
		settings = []setting{{}}
	}
	title(out, base.Markdown, c.title)
	fmt.Fprintf(out, "%d memory servers, %d compute servers, %d clients, %d records, %d operations after %d to warm up; simulated%s\n",
		base.MemoryServers, base.ComputeServers, base.Clients, base.Records, base.Ops, base.Warmup, base.scaled())
	for i := range c.parts {
		p := &c.parts[i]
		name := p.name
		if name == "" {
			name = p.workload
		}
		fmt.Fprintf(out, "\n%s, %s\n", name, p.distribution)
		if base.Markdown {
			fmt.Fprintln(out)
		}
		w := newGrid(out, base.Markdown, append([]string{"", "", "Mop/s", "x " + c.variants[0].label, "paper"}, comparedColumns...)...)
		for n := range settings {
			var first *Result
			for k := range c.variants {
				v := &c.variants[k]
				r, err := c.run(base, p, v, &settings[n])
				if err != nil {
					return nil, err
				}
				res, err := r.Do(ctx)
				if err != nil {
					return nil, err
				}
				if all = append(all, res); first == nil {
					first = res
				}
				claim := 0.0
				if n == len(settings)-1 && k < len(p.claims) {
					claim = p.claims[k]
				}
				w.row(append([]string{settings[n].label, v.label, fmt.Sprintf("%.4g", res.Throughput/1e6),
					given(res.Throughput / first.Throughput), given(claim)}, res.compared()...)...)
			}
		}
		_ = w.end() // out is checked by who reads it
	}
	fmt.Fprintln(out)
	for _, text := range c.notes {
		fmt.Fprintln(out, text)
	}
	return all, nil
}

// comparedColumns are those of a comparison behind its throughputs.
var comparedColumns = []string{"p50 µs", "p99 µs", "READ", "WRITE", "atomic", "trips", "bytes", "NIC", "retries", "conflicts", "delegated", "combined", "hits", "hotspots", "cache B/item", "B/item"}

// compared are the cells of a result in these columns.
func (r *Result) compared() []string {
	s, ops := r.Summary(), float64(r.Ops)
	percent := func(n uint64) string { return fmt.Sprintf("%.1f%%", 100*float64(n)/ops) }
	return []string{
		digits3(s.P50), digits3(s.P99), fmt.Sprintf("%.2f", s.Verbs.Read), fmt.Sprintf("%.2f", s.Verbs.Write), fmt.Sprintf("%.2f", s.Verbs.Atomic),
		fmt.Sprintf("%.2f", s.RoundTripsPerOp), fmt.Sprintf("%.0f", s.BytesPerOp), fmt.Sprintf("%.0f%%", 100*r.occupancy()),
		digits3(float64(r.Stats.Retries) / ops), digits3(float64(r.Stats.LockConflicts) / ops),
		percent(r.Stats.Delegated), percent(r.Stats.Combined), fmt.Sprintf("%.1f%%", 100*s.CacheHitRate), percent(r.Stats.SpeculatedRight),
		digits3(float64(s.CacheBytes) / float64(r.Run.ComputeServers) / float64(r.Run.Records)), fmt.Sprintf("%.1f", s.MemoryBytesPerItem),
	}
}

// wireHeader is what a message takes on the wire beside its payload, as package sim has it.
const wireHeader = 42

// occupancy is the part of the time in which the NICs of the simulated memory servers are busy, on
// average, in the direction that is busier: by the message rate or the bandwidth, whichever says
// more. So a NIC at 100 % bounds the throughput.
func (r *Result) occupancy() float64 {
	v, model := &r.Stats.Verbs, r.Run.model()
	var in, answers uint64
	for _, n := range v.Requests {
		in += n
	}
	answers = in - v.Requests[verbs.Write]
	busy := func(messages, payload uint64) float64 {
		rate := float64(messages) * float64(model.ServerMessage) / float64(time.Nanosecond)
		return max(rate, float64(messages*wireHeader+payload)/model.Bandwidth)
	}
	each := max(busy(in, v.Bytes[verbs.Write]), busy(answers, v.Bytes[verbs.Read])) / float64(r.Ops)
	return each * r.Throughput / 1e9 / float64(r.Run.MemoryServers)
}
