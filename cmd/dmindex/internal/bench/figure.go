package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dmindex/dmindex/pkg/index"
)

// Figure is an experiment of a paper that can be done again on the simulated fabric: one design
// with more and more of its techniques.
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

// claim is what a paper says; 0 = it does not. Latencies are given as how many times lower they are
// than those of the first step.
type claim struct {
	mops       float64
	throughput float64 // over that of the first step
	p50, p99   float64
}

var shermanSteps = []step{
	{name: "FG+"}, {"+Combine", "combine"}, {"+On-Chip", "onChip"}, {"+Hierarchical", "hierarchical"}, {"+2-Level Ver", "twoLevelVersions"},
	{"+Write Combining", "writeCombining"}, // ours
	{"+Read Delegation", "readDelegation"}, // SMART's
}

// paperSkew is the popularity of items in all skewed experiments, whatever the design and the
// paper: the first items are as popular as those of a billion. With as many ranks as we have
// records the first item would be half as popular again, and so would be the conflicts about it.
// Sherman's paper has a billion items; DEX's has 200 million, whose first one is a tenth more
// popular.
const paperSkew = "zipfian:0.99/1e9"

// figures are those of Sherman (SIGMOD 2022), section 5. Only its text and tables are used: heights
// of bars are not read off.
var figures = []Figure{
	{
		Name: "sherman-5", title: "Sherman, figure 5: contributions of techniques, skewed workloads", design: "sherman", steps: shermanSteps,
		parts: []part{
			{workload: "write-only", distribution: paperSkew, claims: []claim{4: {throughput: 24.7, p50: 1.2, p99: 35.8}}},
			{workload: "write-intensive", distribution: paperSkew, claims: []claim{
				1: {throughput: 3.37, p50: 1.14, p99: 3.18},
				2: {throughput: 3.37 * 3.06, p99: 3.18 * 3.48},
				3: {throughput: 3.37 * 3.06 * 2.22, p99: 3.18 * 3.48 * 2.68},
				4: {throughput: 23.6, p50: 1.4, p99: 30.2}}},
			{workload: "read-intensive", distribution: paperSkew, claims: []claim{1: {p99: 15.3 / 12.9}, 4: {p50: 1 / 1.02}}},
		},
		notes: []string{
			"The paper's ratios of write-intensive are products of the factors that its text gives for each step; those of the last step it gives as such.",
			"+Write Combining is ours and +Read Delegation is SMART's: the paper's Sherman is the line before these.",
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
		notes: []string{
			"The paper's text gives the ratios of all techniques together; those of single steps, and read-intensive, stand in its diagram only.",
			"+Write Combining is ours and +Read Delegation is SMART's: the paper's Sherman is the line before these.",
		},
	},
	{
		Name: "sherman-table3", title: "Sherman, table 3: range queries, skewed workloads", design: "sherman",
		steps: []step{{name: "FG+"}, {name: "Sherman", adds: "*"}},
		parts: []part{
			{workload: "range-only", distribution: paperSkew, scan: 100, claims: []claim{{mops: 26.09}, {mops: 25.55}}},
			{workload: "range-only", distribution: paperSkew, scan: 1000, claims: []claim{{mops: 5.77}, {mops: 5.76}}},
			{workload: "range-write", distribution: paperSkew, scan: 100, claims: []claim{{mops: 7.74}, {mops: 14.08}}},
			{workload: "range-write", distribution: paperSkew, scan: 1000, claims: []claim{{mops: 2.49}, {mops: 3.12}}},
		},
		notes: []string{"The paper's throughputs are those of its table; it gives no latencies. Ranges are skewed, writes are taken to be uniform: with skewed ones FG+ could not make 7.74."},
	},
}

// Experiment is what --figure names.
type Experiment interface {
	// Do does the experiment again and writes our figures beside the paper's. base says all of a
	// run that the experiment does not.
	Do(ctx context.Context, base Run, out io.Writer) ([]*Result, error)
	// Defaults changes what base has by the defaults of flags: given says of which this is not so.
	Defaults(base *Run, given func(flag string) bool)
	// Sets reports whether the experiment says itself what a flag of the command would say.
	Sets(flag string) bool
}

// setByAll reports whether every experiment that compares something says itself what a flag would.
func setByAll(flag string) bool {
	return slices.Contains([]string{"design", "transport", "workload", "distribution", "scan", "switch", "cache-bytes", "cache-percent", "bulk-load"}, flag)
}

// Sets implements Experiment.
func (f *Figure) Sets(flag string) bool { return setByAll(flag) }

// LookupFigure finds an experiment by name; the error lists those that there are.
func LookupFigure(name string) (Experiment, error) {
	var names []string
	for i := range figures {
		if figures[i].Name == name {
			return &figures[i], nil
		}
		names = append(names, figures[i].Name)
	}
	for i := range sweeps {
		if sweeps[i].Name == name {
			return &sweeps[i], nil
		}
		names = append(names, sweeps[i].Name)
	}
	for _, list := range [][]Comparison{smartFigures, chimeFigures, dolphinFigures, fiveFigures, claimComparisons} {
		for i := range list {
			if list[i].Name == name {
				return &list[i], nil
			}
			names = append(names, list[i].Name)
		}
	}
	if name == ClaimsFigure {
		return &claimsFigure{papers: slices.Concat(smartClaims, chimeClaims, dexClaims, dolphinClaims)}, nil
	}
	if name == ProcessorFigure {
		return &processorMeasure, nil
	}
	if name == fiveCrash.name {
		return &fiveCrash, nil
	}
	return nil, fmt.Errorf("unknown figure %q: there are %s", name, strings.Join(append(names, ClaimsFigure, fiveCrash.name, ProcessorFigure), ", "))
}

// Defaults implements Experiment: 22 clients on each compute server, as in Sherman's paper.
func (f *Figure) Defaults(base *Run, given func(flag string) bool) {
	defaults(base, given, 8, 176, 1_000_000, 300_000)
	if !given("warmup") {
		base.Warmup = base.Ops / 5
	}
}

// defaults are how many servers of each kind, clients, records and operations an experiment has.
func defaults(base *Run, given func(flag string) bool, servers, clients int, records uint64, ops int) {
	if !given("servers") {
		base.MemoryServers, base.ComputeServers = servers, servers
	}
	if !given("clients") {
		base.Clients = clients
	}
	if !given("records") {
		base.Records = records
	}
	if !given("ops") {
		base.Ops = ops
	}
}

// techniques are all switches of the figure.
func (f *Figure) techniques() (names []string) {
	for _, s := range shermanSteps {
		if s.adds != "" {
			names = append(names, s.adds)
		}
	}
	return names
}

// switches are those of step n: what the steps up to it added is on, all else off. Of a design that
// knows only the switches in known, it is false where one has to be off that it does not know;
// those that have to be on are on without being named.
func (f *Figure) switches(n int, known []string) (map[string]bool, bool) {
	m := map[string]bool{}
	for _, name := range f.techniques() {
		on := false
		for _, s := range f.steps[:n+1] {
			on = on || s.adds == name || s.adds == "*"
		}
		if slices.Contains(known, name) {
			m[name] = on
		} else if !on {
			return nil, false
		}
	}
	return m, true
}

// unknown are the switches of the figure that the design does not know.
func (f *Figure) unknown(known []string) []string {
	return slices.DeleteFunc(f.techniques(), func(name string) bool { return slices.Contains(known, name) })
}

// Do does the experiment again and writes our figures beside the paper's. base says all of a run
// that the figure does not. Steps that need a switch to be off that the design does not know are
// left out.
func (f *Figure) Do(ctx context.Context, base Run, out io.Writer) ([]*Result, error) {
	design, err := index.Lookup(f.design)
	if err != nil {
		return nil, err
	}
	var all []*Result
	rows := make([][]*Result, len(f.parts))
	for i := range f.parts {
		rows[i] = make([]*Result, len(f.steps))
		for n := range f.steps {
			switches, can := f.switches(n, design.Switches)
			if !can {
				continue
			}
			r, err := f.run(base, i, switches)
			if err == nil {
				r.Label = f.steps[n].name
				rows[i][n], err = r.Do(ctx)
			}
			if err != nil {
				return nil, err
			}
			all = append(all, rows[i][n])
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
	title(out, base.Markdown, f.title)
	fmt.Fprintf(out, "%d memory servers, %d compute servers, %d clients, %d records (the paper: 8, 8, 176, 1 billion), simulated%s\n\n",
		base.MemoryServers, base.ComputeServers, base.Clients, base.Records, base.scaled())
	w := newGrid(out, base.Markdown, "", "", "Mop/s", "paper", "x FG+", "paper", "p50 µs", "x lower", "paper", "p99 µs", "x lower", "paper")
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
			ours := r.cellsOver(first)
			w.row(name, f.steps[n].name, ours[0], given(c.mops), ours[1], given(c.throughput),
				ours[2], ours[3], given(c.p50), ours[4], ours[5], given(c.p99))
		}
	}
	if err := w.end(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, note := range f.notes {
		fmt.Fprintln(out, note)
	}
	if len(unknown) > 0 {
		fmt.Fprintf(out, "Design %s has no switch %s: what needs one of them off was not run.\n", f.design, strings.Join(unknown, ", "))
	}
	return nil
}

// cellsOver is throughput and latencies, each beside its ratio to those of the first step; dashes
// for what was not run.
func (r *Result) cellsOver(first *Result) [6]string {
	if r == nil {
		return [6]string{"-", "-", "-", "-", "-", "-"}
	}
	cells := [6]string{fmt.Sprintf("%.4g", r.Throughput/1e6), "-", digits3(r.micros(0.5)), "-", digits3(r.micros(0.99)), "-"}
	if first != nil {
		cells[1] = given(r.Throughput / first.Throughput)
		cells[3] = given(first.micros(0.5) / r.micros(0.5))
		cells[5] = given(first.micros(0.99) / r.micros(0.99))
	}
	return cells
}

// given is a figure of the paper, or a dash.
func given(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}
