package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// Sweep is an experiment of a paper that compares variants of designs, for several workloads, over
// a number that grows.
type Sweep struct {
	Name, title string
	over        over
	points      []float64 // of what grows; of clients as shares of those of one compute server
	variants    []variant
	parts       []sweepPart
	// of each compute server in percent of the leaves, unless it is that which grows
	cache   float64
	memory  int // memory servers; 0 = as many as compute servers
	against int // the variant that others are compared with
	notes   []string
}

// over says what grows.
type over uint8

const (
	// and compute servers with them, when those that there are have their share
	overClients   over = iota
	overCache          // of each compute server, in percent
	overThreads        // of each memory server, for calls
	overProcessor      // the processor time of operations, in times of what was measured
)

// variant is a design with some techniques off.
type variant struct {
	label, design string
	off           []string
	node          int // bytes of a node; 0 = the design's default
	hood          int // its neighbourhood; 0 = its default
	inline        int // longest value in a leaf; 0 = the design's default
	// in a Comparison: the design's default cache, which four times the warm-up fills
	allCached bool
	// in a Comparison: its own cache in MB for 60 million records; 0 = as the others
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

// sweepPart is one workload of a sweep.
type sweepPart struct {
	name         string // in the paper
	workload     string
	distribution string
	scan         int // pairs of each; 0 = there are no scans
	// of the paper, by variant: its throughput over that of the variant that others are compared
	// with, at the last point; 0 = it does not say
	claims []float64
}

// Defaults implements Experiment: servers and clients are those of DEX's paper, items fewer than
// its 200 million. With many fewer than a million there are not enough subtrees for all memory
// servers, each of which has subtrees as a whole. Caches need some time to find what is popular.
func (f *Sweep) Defaults(base *Run, given func(flag string) bool) {
	defaults(base, given, 4, 144, 1_000_000, 60_000)
	if f.memory > 0 && !given("servers") {
		base.MemoryServers = f.memory
	}
	if !given("warmup") {
		base.Warmup = 4 * base.Ops
	}
}

// Sets implements Experiment.
func (f *Sweep) Sets(flag string) bool {
	return setByAll(flag) || flag == "processor-time" && f.over == overProcessor
}

// point is one run's place in a sweep.
type point struct {
	label            string
	clients, servers int
	percent          float64
	threads          int
	processor        float64 // 0 = as base has it
}

// pointsOf are the points of a sweep, with the clients and compute servers of base as the most.
func (f *Sweep) pointsOf(base *Run) (list []point) {
	each := max(1, base.Clients/base.ComputeServers)
	for _, v := range f.points {
		p := point{clients: base.Clients, servers: base.ComputeServers, percent: f.cache}
		switch f.over {
		case overCache:
			p.percent, p.label = v, fmt.Sprintf("%g%%", v)
		case overThreads:
			p.threads, p.label = int(v), fmt.Sprint(v)
		case overProcessor:
			p.processor, p.label = v, fmt.Sprintf("%gx", v)
		default:
			p.clients = max(1, min(base.Clients, int(v*float64(each))))
			p.servers = min(base.ComputeServers, (p.clients+each-1)/each)
			p.label = strconv.Itoa(p.clients)
		}
		if len(list) == 0 || list[len(list)-1] != p {
			list = append(list, p)
		}
	}
	return list
}

// Do does the experiment again and writes our figures beside the paper's. base says all of a run
// that the sweep does not.
func (f *Sweep) Do(ctx context.Context, base Run, out io.Writer) ([]*Result, error) {
	points := f.pointsOf(&base)
	var all []*Result
	grid := map[[3]int]*Result{} // by part, variant and point
	for i := range f.parts {
		for v := range f.variants {
			for k, p := range points {
				r, err := f.run(base, i, v, p)
				if err != nil {
					return nil, err
				}
				res, err := r.Do(ctx)
				if err != nil {
					return nil, err
				}
				grid[[3]int{i, v, k}] = res
				all = append(all, res)
			}
		}
	}
	f.write(out, &base, points, grid)
	for _, text := range f.notes {
		fmt.Fprintln(out, text)
	}
	return all, nil
}

// runAt implements runner.
func (f *Sweep) runAt(base Run, at place) (*Run, error) {
	points := f.pointsOf(&base)
	part := max(0, slices.IndexFunc(f.parts, func(p sweepPart) bool { return p.name == at.part }))
	v := slices.IndexFunc(f.variants, func(v variant) bool { return v.label == at.variant })
	k := len(points) - 1
	if at.setting != "" {
		k = slices.IndexFunc(points, func(p point) bool { return p.label == at.setting })
	}
	if v < 0 || k < 0 || at.part != "" && f.parts[part].name != at.part {
		return nil, fmt.Errorf("figure %s has no run %+v", f.Name, at)
	}
	return f.run(base, part, v, points[k])
}

// run is the run of a part, with a variant, at a point.
func (f *Sweep) run(base Run, part, v int, at point) (*Run, error) {
	p, r := &f.parts[part], base
	r.Label, r.Design, r.Transport, r.BulkLoad = f.variants[v].label, f.variants[v].design, "sim", true
	r.Clients, r.ComputeServers, r.CachePercent, r.CacheBytes = at.clients, at.servers, at.percent, 0
	r.MemoryThreads, r.Switches = at.threads, f.variants[v].switches()
	if at.processor > 0 {
		r.ProcessorScale = at.processor
	}
	if p.scan > 0 {
		r.ScanFrom, r.ScanTo = p.scan, p.scan
	}
	var err error
	if r.Workload, err = LookupWorkload(p.workload); err == nil {
		r.Distribution, err = ParseDistribution(p.distribution)
	}
	return &r, err
}

// write writes a table for each workload: throughput by point, then ratios and requests of the last
// point.
func (f *Sweep) write(out io.Writer, base *Run, points []point, grid map[[3]int]*Result) {
	title(out, base.Markdown, f.title)
	fmt.Fprintf(out, "%d memory servers, %d compute servers, %d clients, %d records, %d operations after %d to warm up; simulated%s\n",
		base.MemoryServers, base.ComputeServers, base.Clients, base.Records, base.Ops, base.Warmup, base.scaled())
	what := "million operations a second by " + [...]string{"clients", "cache of each compute server, in percent of all leaves", "threads of each memory server",
		"times the processor time that was measured"}[f.over]
	last := len(points) - 1
	for i, p := range f.parts {
		fmt.Fprintf(out, "\n%s, %s: %s\n", p.name, p.distribution, what)
		if base.Markdown {
			fmt.Fprintln(out)
		}
		head := []string{""}
		for _, at := range points {
			head = append(head, at.label)
		}
		reference := grid[[3]int{i, f.against, last}]
		head = append(head, "x "+f.variants[f.against].label, "paper", "READ", "x best", "x popular", "WRITE", "log", "atomic", "rpc", "bytes", "p50 µs", "p99 µs")
		w := newGrid(out, base.Markdown, head...)
		for v, variant := range f.variants {
			cells := []string{variant.label}
			for k := range points {
				cell := fmt.Sprintf("%.4g", grid[[3]int{i, v, k}].Throughput/1e6)
				if f.over == overProcessor {
					cell += fmt.Sprintf(" (%.2fx)", grid[[3]int{i, v, k}].Throughput/grid[[3]int{i, f.against, k}].Throughput)
				}
				cells = append(cells, cell)
			}
			r := grid[[3]int{i, v, last}]
			s, ratio := r.Summary(), "-"
			if reference != nil {
				ratio = given(r.Throughput / reference.Throughput)
			}
			claim := 0.0
			if v < len(p.claims) {
				claim = p.claims[v]
			}
			cells = append(cells, ratio, given(claim), fmt.Sprintf("%.2f", s.Verbs.Read), given(s.ReadsOverOptimum), given(s.ReadsOverPopular), fmt.Sprintf("%.2f", s.Verbs.Write),
				fmt.Sprintf("%.2f", s.Verbs.Log), fmt.Sprintf("%.2f", s.Verbs.Atomic), fmt.Sprintf("%.2f", s.Verbs.RPC), fmt.Sprintf("%.0f", s.BytesPerOp), digits3(s.P50), digits3(s.P99))
			w.row(cells...)
		}
		_ = w.end() // out is checked by who reads it
	}
	fmt.Fprintln(out)
}
