package bench

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/dmindex/dmindex/pkg/index"
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
	real  bool // settings say on which of this machine's fabrics
	// LOAD is measured over as many insertions as there are records. Leaves of a bulk load are all
	// as full as each other, so in less than that those of one design may all be about to split,
	// and those of another one far from it.
	doubles bool
	// caches of each compute server in percent of the bytes of the keys and values that are loaded,
	// the same bytes for every design; 0 = by cache
	share    float64
	variants []variant // none = every design that is registered, Sherman first
	columns  []string  // behind the throughputs; none = comparedColumns, and what the paper says
	settings []setting // none = one, that of the fields above
	parts    []comparedPart
	notes    []string
}

// clusterSize is how many servers of each kind there are, and clients on each compute server.
type clusterSize struct{ memory, compute, each int }

// comparedPart is one workload of a comparison.
type comparedPart struct {
	name         string // "" = the workload's
	workload     string
	distribution string // "" = settings say it
	// of the paper, by variant: its throughput over that of the first variant, at the last setting;
	// 0 = it does not say
	claims []float64
}

// everyDesign are the designs that are registered. Sherman is the first one: all papers compare
// with it.
func everyDesign() []variant {
	list := []variant{{label: "sherman", design: "sherman"}}
	for _, name := range index.Names() {
		if name != "sherman" {
			list = append(list, variant{label: name, design: name})
		}
	}
	return list
}

// title is how the part is called.
func (p *comparedPart) title() string {
	if p.name != "" {
		return p.name
	}
	return p.workload
}

// compared are its variants.
func (c *Comparison) compared() []variant {
	if len(c.variants) == 0 {
		return everyDesign()
	}
	return c.variants
}

// Sets implements Experiment.
func (c *Comparison) Sets(flag string) bool {
	return setByAll(flag) || slices.ContainsFunc(c.settings, func(s setting) bool { return slices.Contains(s.flags, flag) })
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
	r.CachePercent, r.CacheBytes, r.NodeBytes, r.Neighbourhood, r.InlineBytes = 0, 0, v.node, v.hood, v.inline
	var err error
	if r.Workload, err = LookupWorkload(p.workload); err == nil && p.distribution != "" {
		r.Distribution, err = ParseDistribution(p.distribution)
	}
	if s.change != nil {
		s.change(&r)
	}
	if r.Workload.share[lookup]+r.Workload.share[update]+r.Workload.share[scan] == 0 {
		r.Warmup = min(r.Warmup, r.Ops/2) // there is no reading that could warm a cache
		if c.doubles {
			r.Ops = int(r.Records)
		}
	}
	mb := c.cache
	if v.cache > 0 {
		mb = v.cache
	}
	if mb > 0 && r.CacheBytes == 0 {
		r.CacheBytes = scaledCache(mb, r.Records)
	}
	if c.share > 0 && r.CacheBytes == 0 {
		r.CacheBytes = r.itemsShare(c.share)
	}
	if v.allCached { // each inner node has to be seen once
		r.CacheBytes, r.Warmup = 0, 4*r.Warmup
	}
	return &r, err
}

// runAt implements runner.
func (c *Comparison) runAt(base Run, at place) (*Run, error) {
	part := max(0, slices.IndexFunc(c.parts, func(p comparedPart) bool { return p.title() == at.part }))
	v := slices.IndexFunc(c.variants, func(v variant) bool { return v.label == at.variant })
	s := len(c.settings) - 1
	if at.setting != "" {
		s = slices.IndexFunc(c.settings, func(s setting) bool { return s.label == at.setting })
	}
	if v < 0 || at.part != "" && c.parts[part].title() != at.part || at.setting != "" && s < 0 {
		return nil, fmt.Errorf("figure %s has no run %+v", c.Name, at)
	}
	if s < 0 {
		return c.run(base, &c.parts[part], &c.variants[v], &setting{})
	}
	return c.run(base, &c.parts[part], &c.variants[v], &c.settings[s])
}

// Do does the experiment again and writes our figures beside the paper's. base says all of a run
// that the comparison does not.
func (c *Comparison) Do(ctx context.Context, base Run, out io.Writer) (all []*Result, err error) {
	settings := c.settings
	if len(settings) == 0 {
		settings = []setting{{}}
	}
	variants := c.compared()
	names, head := c.columns, []string{"", "", "Mop/s", "x " + variants[0].label}
	if names == nil {
		names, head = comparedColumns, append(head, "paper")
	}
	time := "simulated"
	if c.real {
		time = "in real time"
	}
	title(out, base.Markdown, c.title)
	fmt.Fprintf(out, "%d memory servers, %d compute servers, %d clients, %d records, %d operations after %d to warm up; %s%s\n",
		base.MemoryServers, base.ComputeServers, base.Clients, base.Records, base.Ops, base.Warmup, time, base.scaled())
	for i := range c.parts {
		p := &c.parts[i]
		name := p.title()
		if p.distribution != "" {
			name += ", " + p.distribution
		}
		fmt.Fprintf(out, "\n%s\n", name)
		if base.Markdown {
			fmt.Fprintln(out)
		}
		w := newGrid(out, base.Markdown, append(head, names...)...)
		for n := range settings {
			var first *Result
			for k := range variants {
				v := &variants[k]
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
				cells := []string{settings[n].label, v.label, fmt.Sprintf("%.4g", res.Throughput/1e6), given(res.Throughput / first.Throughput)}
				if c.columns == nil {
					claim := 0.0
					if n == len(settings)-1 && k < len(p.claims) {
						claim = p.claims[k]
					}
					cells = append(cells, given(claim))
				}
				w.row(append(cells, res.cells(names)...)...)
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

// comparedColumns are those of a comparison of a paper, behind its throughputs.
var comparedColumns = columns("p50 µs,p99 µs,READ,WRITE,atomic,trips,bytes,NIC,retries,conflicts,delegated,combined,hits,hotspots,cache B/item,B/item")
