package bench

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dmindex/dmindex/pkg/index"
)

// Figure is an experiment of a paper that can be done again on the simulated fabric: one design with more and more of its techniques.
type Figure struct {
	Name   string
	title  string
	design string
	steps  []step
	parts  []part
	notes  []string // on where the paper's figures come from
}

// step is the techniques that are on; all others of the figure's steps are off.
type step struct {
	name string
	adds string // the switch that this step turns on; "" = none
}

// part is one workload of a figure.
type part struct {
	workload     string
	distribution string
	scan         int     // pairs of each; 0 = there are no scans
	claims       []claim // of the paper, by step; none = it gives no figures
}

// claim is what a paper says; 0 = it does not. Latencies are given as how many times lower they are than those of the first step.
type claim struct {
	mops       float64
	throughput float64 // over that of the first step
	p50, p99   float64
}

var shermanSteps = []step{
	{name: "FG+"}, {"+Combine", "combine"}, {"+On-Chip", "onChip"}, {"+Hierarchical", "hierarchical"}, {"+2-Level Ver", "twoLevelVersions"},
}

// figures are those of Sherman (SIGMOD 2022), section 5. Only its text and tables are used: heights of bars are not read off.
var figures = []Figure{
	{
		Name: "sherman-5", title: "Sherman, figure 5: contributions of techniques, skewed workloads", design: "sherman", steps: shermanSteps,
		parts: []part{
			{workload: "write-only", distribution: "zipfian:0.99", claims: []claim{4: {throughput: 24.7, p50: 1.2, p99: 35.8}}},
			{workload: "write-intensive", distribution: "zipfian:0.99", claims: []claim{
				1: {throughput: 3.37, p50: 1.14, p99: 3.18},
				2: {throughput: 3.37 * 3.06, p99: 3.18 * 3.48},
				3: {throughput: 3.37 * 3.06 * 2.22, p99: 3.18 * 3.48 * 2.68},
				4: {throughput: 23.6, p50: 1.4, p99: 30.2}}},
			{workload: "read-intensive", distribution: "zipfian:0.99", claims: []claim{1: {p99: 15.3 / 12.9}, 4: {p50: 1 / 1.02}}},
		},
		notes: []string{
			"The paper's ratios of write-intensive are products of the factors that its text gives for each step; those of the last step it gives as such.",
			"Of read-intensive it says that throughput hardly changes, that +Combine lowers p99 from 15.3 to 12.9 µs, and that p50 ends 2% higher.",
			"Everything else stands in its diagram only.",
		},
	},
	{
		Name: "sherman-6", title: "Sherman, figure 6: contributions of techniques, uniform workloads", design: "sherman", steps: shermanSteps,
		parts: []part{
			{workload: "write-only", distribution: "uniform", claims: []claim{4: {throughput: 1.24, p50: 1.24, p99: 2.01}}},
			{workload: "write-intensive", distribution: "uniform", claims: []claim{4: {throughput: 1.15, p50: 1.19, p99: 1.27}}},
			{workload: "read-intensive", distribution: "uniform"},
		},
		notes: []string{"The paper's text gives the ratios of all techniques together; those of single steps, and read-intensive, stand in its diagram only."},
	},
	{
		Name: "sherman-table3", title: "Sherman, table 3: range queries, skewed workloads", design: "sherman",
		steps: []step{{name: "FG+"}, {name: "Sherman", adds: "*"}},
		parts: []part{
			{workload: "range-only", distribution: "zipfian:0.99", scan: 100, claims: []claim{{mops: 26.09}, {mops: 25.55}}},
			{workload: "range-only", distribution: "zipfian:0.99", scan: 1000, claims: []claim{{mops: 5.77}, {mops: 5.76}}},
			{workload: "range-write", distribution: "zipfian:0.99", scan: 100, claims: []claim{{mops: 7.74}, {mops: 14.08}}},
			{workload: "range-write", distribution: "zipfian:0.99", scan: 1000, claims: []claim{{mops: 2.49}, {mops: 3.12}}},
		},
		notes: []string{"All of the paper's throughputs are those of its table; it gives no latencies."},
	},
}

// LookupFigure finds a figure by name; the error lists those that there are.
func LookupFigure(name string) (*Figure, error) {
	var names []string
	for i := range figures {
		if figures[i].Name == name {
			return &figures[i], nil
		}
		names = append(names, figures[i].Name)
	}
	return nil, fmt.Errorf("unknown figure %q: there are %s", name, strings.Join(names, ", "))
}

// What the papers' clusters have, and how much of an experiment is done again.
const (
	FigureServers = 8   // of memory, and of compute
	FigureClients = 176 // 22 on each compute server
	FigureRecords = 1_000_000
	FigureOps     = 300_000
)

// switches are those of the first n+1 steps turned on and the others off; of names, which the design knows.
func (f *Figure) switches(n int, names []string) map[string]bool {
	m := map[string]bool{}
	for _, s := range shermanSteps {
		if slices.Contains(names, s.adds) {
			m[s.adds] = f.steps[n].adds == "*"
		}
	}
	for _, s := range f.steps[:n+1] {
		if _, known := m[s.adds]; known {
			m[s.adds] = true
		}
	}
	return m
}

// unknown are the switches of the figure that the design does not know.
func (f *Figure) unknown(names []string) (list []string) {
	for _, s := range shermanSteps {
		if s.adds != "" && !slices.Contains(names, s.adds) {
			list = append(list, s.adds)
		}
	}
	return list
}

// Do does the experiment again and writes our figures beside the paper's. base says all of a run that the figure does not. Steps that differ in
// no switch that the design knows are one run: it would be the same again.
func (f *Figure) Do(ctx context.Context, base Run, out io.Writer) ([]*Result, error) {
	design, err := index.Lookup(f.design)
	if err != nil {
		return nil, err
	}
	var all []*Result
	rows := make([][]*Result, len(f.parts))
	for i := range f.parts {
		for n := range f.steps {
			r, err := f.run(base, i, f.switches(n, design.Switches))
			if err != nil {
				return nil, err
			}
			if n > 0 && maps.Equal(r.Switches, rows[i][n-1].Run.Switches) {
				rows[i] = append(rows[i], rows[i][n-1])
				continue
			}
			res, err := r.Do(ctx)
			if err != nil {
				return nil, err
			}
			rows[i], all = append(rows[i], res), append(all, res)
		}
	}
	return all, f.write(out, &base, rows, f.unknown(design.Switches))
}

// run is the run of a part with some switches.
func (f *Figure) run(base Run, part int, switches map[string]bool) (*Run, error) {
	p, r := &f.parts[part], base
	r.Design, r.Transport, r.Switches = f.design, "sim", switches
	if p.scan > 0 {
		r.ScanFrom, r.ScanTo = p.scan, p.scan
	}
	var err error
	if r.Workload, err = LookupWorkload(p.workload); err == nil {
		r.Distribution, err = ParseDistribution(p.distribution)
	}
	return &r, err
}

// write writes the tables.
func (f *Figure) write(out io.Writer, base *Run, rows [][]*Result, unknown []string) error {
	fmt.Fprintf(out, "%s\n%d memory servers, %d compute servers, %d clients, %d records (the paper: 8, 8, 176, 1 billion), simulated\n\n",
		f.title, base.MemoryServers, base.ComputeServers, base.Clients, base.Records)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\t\tMop/s\tpaper\tx FG+\tpaper\tp50 µs\tx lower\tpaper\tp99 µs\tx lower\tpaper\t")
	for i, p := range f.parts {
		first := rows[i][0]
		for n, r := range rows[i] {
			var c claim
			if n < len(p.claims) {
				c = p.claims[n]
			}
			if c.mops > 0 && c.throughput == 0 {
				c.throughput = c.mops / p.claims[0].mops
			}
			name := p.workload
			if p.scan > 0 {
				name = fmt.Sprintf("%s, %d", name, p.scan)
			}
			fmt.Fprintf(w, "%s\t%s\t%.4g\t%s\t%.2f\t%s\t%s\t%.2f\t%s\t%s\t%.2f\t%s\t\n", name, f.steps[n].name,
				r.Throughput/1e6, given(c.mops), r.Throughput/first.Throughput, given(c.throughput),
				digits3(r.micros(0.5)), first.micros(0.5)/r.micros(0.5), given(c.p50),
				digits3(r.micros(0.99)), first.micros(0.99)/r.micros(0.99), given(c.p99))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, note := range f.notes {
		fmt.Fprintln(out, note)
	}
	if len(unknown) > 0 {
		fmt.Fprintf(out, "Design %s has no switch %s yet: those techniques are as they always are in it, in every line.\n", f.design, strings.Join(unknown, ", "))
	}
	return nil
}

// given is a figure of the paper, or a dash.
func given(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}
