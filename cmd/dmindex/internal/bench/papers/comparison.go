package papers

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
	"github.com/dmindex/dmindex/pkg/index"
)

// Comparison is an experiment that compares designs, or a design with techniques off, for several
// workloads, at one or several settings.
type Comparison struct {
	Name, title string
	cluster     clusterSize
	records     uint64
	ops, warmup int
	warmupShare float64 // of ops; 0 = warmup
	// of each compute server in MB for 60 million records, as the papers give it; 0 = the designs'
	// default, which holds all inner nodes of so few records
	cache   float64
	percent float64 // the same in percent of the bytes of all leaves
	// the same in percent of the bytes of the keys and values that are loaded: the same bytes for
	// every design
	share    float64
	real     bool // settings say on which of this machine's fabrics
	inserted bool // records are inserted, not bulk loaded
	// LOAD is measured over as many insertions as there are records. Leaves of a bulk load are all
	// as full as each other, so in less than that those of one design may all be about to split,
	// and those of another one far from it.
	doubles  bool
	variants []variant // none = every design that is registered, Sherman first
	settings []setting // none = one, that of the fields above
	grow     *growth   // in their place: settings that follow from a number that grows
	parts    []comparedPart
	table    tableKind
	// of lines behind the throughputs; none = comparedColumns, and what the paper says
	columns []string
	notes   []string
}

// clusterSize is how many servers of each kind there are, and clients on each compute server.
type clusterSize struct{ memory, compute, each int }

// comparedPart is one workload of a comparison.
type comparedPart struct {
	name         string // "" = the workload's
	workload     string
	distribution string // "" = settings say it
	scan         int    // pairs of each; 0 = the workload says it
	// of the paper, by variant: its throughput over that of the first variant, at the last setting;
	// 0 = it does not say
	claims []float64
	steps  []claim // the same, of a table of steps
}

// variant is a design with some techniques off.
type variant struct {
	label, design string
	off           []string
	node          int // bytes of a node; 0 = the design's default
	hood          int // its neighbourhood; 0 = its default
	inline        int // longest value in a leaf; 0 = the design's default
	// the design's default cache, which four times the warm-up fills
	allCached bool
	// its own cache in MB for 60 million records; 0 = as the others
	cache float64
}

// switches are those that are off.
func (v *variant) switches() map[string]bool {
	if len(v.off) == 0 {
		return nil
	}
	m := map[string]bool{}
	for _, name := range v.off {
		m[name] = false
	}
	return m
}

// paperSkew is the popularity of items in all skewed experiments, whatever the design and the
// paper: the first items are as popular as those of a billion. With as many ranks as we have
// records the first item would be half as popular again, and so would be the conflicts about it.
// Sherman's paper has a billion items; DEX's has 200 million, whose first one is a tenth more
// popular.
const paperSkew = "zipfian:0.99/1e9"

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

// settingsOf are its settings, one at least.
func (c *Comparison) settingsOf(base *bench.Run) []setting {
	switch {
	case c.grow != nil:
		return c.grow.settings(base)
	case len(c.settings) == 0:
		return []setting{{}}
	}
	return c.settings
}

// Sets implements Experiment.
func (c *Comparison) Sets(flag string) bool {
	return setByAll(flag) || c.grow != nil && c.grow.flag == flag && flag != "" ||
		slices.ContainsFunc(c.settings, func(s setting) bool { return slices.Contains(s.flags, flag) })
}

// Defaults implements Experiment.
func (c *Comparison) Defaults(base *bench.Run, given func(flag string) bool) {
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
	switch {
	case given("warmup"):
	case c.warmupShare > 0:
		base.Warmup = int(c.warmupShare * float64(base.Ops))
	default:
		base.Warmup = c.warmup
	}
}

// run is the run of a part, with a variant, at a setting.
func (c *Comparison) run(base bench.Run, p *comparedPart, v *variant, s *setting) (*bench.Run, error) {
	r := base
	r.Label, r.Design, r.Transport, r.BulkLoad, r.Switches = v.label, v.design, "sim", !c.inserted, v.switches()
	r.CachePercent, r.CacheBytes, r.NodeBytes, r.Neighbourhood, r.InlineBytes = c.percent, 0, v.node, v.hood, v.inline
	var err error
	if r.Workload, err = workload.ByName(p.workload); err == nil && p.distribution != "" {
		r.Distribution, err = workload.ParseDistribution(p.distribution)
	}
	if p.scan > 0 {
		r.ScanFrom, r.ScanTo = p.scan, p.scan
	}
	if s.change != nil {
		s.change(&r)
	}
	if r.Workload.Share[workload.Lookup]+r.Workload.Share[workload.Update]+r.Workload.Share[workload.Scan] == 0 {
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
		r.CacheBytes = r.ItemsShare(c.share)
	}
	if v.allCached { // each inner node has to be seen once
		r.CacheBytes, r.Warmup = 0, 4*r.Warmup
	}
	return &r, err
}

// runAt implements runner.
func (c *Comparison) runAt(base bench.Run, at place) (*bench.Run, error) {
	variants, settings := c.compared(), c.settingsOf(&base)
	part := max(0, slices.IndexFunc(c.parts, func(p comparedPart) bool { return p.title() == at.part }))
	v := slices.IndexFunc(variants, func(v variant) bool { return v.label == at.variant })
	s := len(settings) - 1
	if at.setting != "" {
		s = slices.IndexFunc(settings, func(s setting) bool { return s.label == at.setting })
	}
	if v < 0 || s < 0 || at.part != "" && c.parts[part].title() != at.part {
		return nil, fmt.Errorf("figure %s has no run %+v", c.Name, at)
	}
	return c.run(base, &c.parts[part], &variants[v], &settings[s])
}

// Do implements Experiment.
func (c *Comparison) Do(ctx context.Context, base bench.Run, out io.Writer) (all []*bench.Result, err error) {
	variants, settings := c.compared(), c.settingsOf(&base)
	t := table{Comparison: c, out: out, base: &base, variants: variants, settings: settings}
	t.begin()
	for i := range c.parts {
		results := make([][]*bench.Result, len(settings))
		for n := range settings {
			for k := range variants {
				r, err := c.run(base, &c.parts[i], &variants[k], &settings[n])
				if err != nil {
					return nil, err
				}
				res, err := r.Do(ctx)
				if err != nil {
					return nil, err
				}
				results[n], all = append(results[n], res), append(all, res)
			}
		}
		if err := t.part(&c.parts[i], results); err != nil {
			return nil, err
		}
	}
	return all, t.end()
}
