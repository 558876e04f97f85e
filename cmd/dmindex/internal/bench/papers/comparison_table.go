package papers

import (
	"fmt"
	"io"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/report"
)

// tableKind is how a comparison is shown.
type tableKind uint8

const (
	linesTable  tableKind = iota // a line for each variant at each setting
	stepsTable                   // one table: throughput and latencies of steps, beside the paper's
	pointsTable                  // throughputs by setting, then ratios and requests of the last one
)

// table is a comparison's under way.
type table struct {
	*Comparison
	out      io.Writer
	base     *bench.Run
	variants []variant
	settings []setting
	steps    *report.Grid // of all parts
}

// begin writes what is above the first part.
func (t *table) begin() {
	report.Title(t.out, t.base.Markdown, t.title)
	fmt.Fprintf(t.out, "%d memory servers, %d compute servers, %d clients, %d records", t.base.MemoryServers, t.base.ComputeServers, t.base.Clients, t.base.Records)
	if t.table == stepsTable {
		fmt.Fprintf(t.out, " (the paper: 8, 8, 176, 1 billion), simulated%s\n\n", t.base.ModelChanges())
		t.steps = report.NewGrid(t.out, t.base.Markdown, "", "", "Mop/s", "paper", "x FG+", "paper", "p50 µs", "x lower", "paper", "p99 µs", "x lower", "paper")
		return
	}
	time := "simulated"
	if t.real {
		time = "in real time"
	}
	fmt.Fprintf(t.out, ", %d operations after %d to warm up; %s%s\n", t.base.Ops, t.base.Warmup, time, t.base.ModelChanges())
}

// part writes the results of a part, by setting and variant.
func (t *table) part(p *comparedPart, results [][]*bench.Result) error {
	name := p.title()
	if p.distribution != "" {
		name += ", " + p.distribution
	}
	switch t.table {
	case stepsTable:
		t.stepsOf(p, results[0])
		return nil
	case pointsTable:
		name += ": million operations a second by " + t.grow.title
	}
	fmt.Fprintf(t.out, "\n%s\n", name)
	if t.base.Markdown {
		fmt.Fprintln(t.out)
	}
	if t.table == pointsTable {
		return t.points(p, results)
	}
	return t.lines(p, results)
}

// end writes what is below the last part.
func (t *table) end() error {
	if t.steps != nil {
		if err := t.steps.End(); err != nil {
			return err
		}
	}
	fmt.Fprintln(t.out)
	for _, text := range t.notes {
		fmt.Fprintln(t.out, text)
	}
	return nil
}

// lines are those of a part.
func (t *table) lines(p *comparedPart, results [][]*bench.Result) error {
	names, head := t.columns, []string{"", "", "Mop/s", "x " + t.variants[0].label}
	if names == nil {
		names, head = comparedColumns, append(head, "paper")
	}
	w := report.NewGrid(t.out, t.base.Markdown, append(head, names...)...)
	for n, row := range results {
		for k, res := range row {
			line := []string{t.settings[n].label, t.variants[k].label, fmt.Sprintf("%.4g", res.Throughput/1e6), report.OrDash(res.Throughput / row[0].Throughput)}
			if t.columns == nil {
				claim := 0.0
				if n == len(results)-1 {
					claim = p.claimOf(k)
				}
				line = append(line, report.OrDash(claim))
			}
			w.Row(append(line, report.Cells(res, names)...)...)
		}
	}
	return w.End()
}

// claimOf is what the paper says of a variant; 0 = nothing.
func (p *comparedPart) claimOf(k int) float64 {
	if k < len(p.claims) {
		return p.claims[k]
	}
	return 0
}

// points are the lines of a part: a variant with all settings in each.
func (t *table) points(p *comparedPart, results [][]*bench.Result) error {
	head := []string{""}
	for _, s := range t.settings {
		head = append(head, s.label)
	}
	last := results[len(results)-1]
	head = append(head, "x "+t.variants[0].label, "paper", "READ", "x best", "x popular", "WRITE", "log", "atomic", "rpc", "bytes", "p50 µs", "p99 µs")
	w := report.NewGrid(t.out, t.base.Markdown, head...)
	for k, v := range t.variants {
		cells := []string{v.label}
		for _, row := range results {
			cell := fmt.Sprintf("%.4g", row[k].Throughput/1e6)
			if t.grow.ratios {
				cell += fmt.Sprintf(" (%.2fx)", row[k].Throughput/row[0].Throughput)
			}
			cells = append(cells, cell)
		}
		s := last[k].Summary()
		w.Row(append(cells, report.OrDash(last[k].Throughput/last[0].Throughput), report.OrDash(p.claimOf(k)), fmt.Sprintf("%.2f", s.Verbs.Read), report.OrDash(s.ReadsOverOptimum), report.OrDash(s.ReadsOverPopular),
			fmt.Sprintf("%.2f", s.Verbs.Write), fmt.Sprintf("%.2f", s.Verbs.Log), fmt.Sprintf("%.2f", s.Verbs.Atomic), fmt.Sprintf("%.2f", s.Verbs.RPC), fmt.Sprintf("%.0f", s.BytesPerOp),
			report.Digits3(s.P50), report.Digits3(s.P99))...)
	}
	return w.End()
}

// stepsOf adds the steps of a part to the table.
func (t *table) stepsOf(p *comparedPart, row []*bench.Result) {
	name := p.title()
	if p.scan > 0 {
		name = fmt.Sprintf("%s, %d", name, p.scan)
	}
	for k, r := range row {
		var c claim
		if k < len(p.steps) {
			c = p.steps[k]
		}
		if c.mops > 0 && c.throughput == 0 {
			c.throughput = c.mops / p.steps[0].mops
		}
		first := row[0]
		t.steps.Row(name, t.variants[k].label, fmt.Sprintf("%.4g", r.Throughput/1e6), report.OrDash(c.mops), report.OrDash(r.Throughput/first.Throughput), report.OrDash(c.throughput),
			report.Digits3(r.Micros(0.5)), report.OrDash(first.Micros(0.5)/r.Micros(0.5)), report.OrDash(c.p50), report.Digits3(r.Micros(0.99)), report.OrDash(first.Micros(0.99)/r.Micros(0.99)), report.OrDash(c.p99))
	}
}

// comparedColumns are those of a comparison of a paper, behind its throughputs.
var comparedColumns = report.Columns("p50 µs,p99 µs,READ,WRITE,atomic,trips,bytes,NIC,retries,conflicts,delegated,combined,hits,hotspots,cache B/item,B/item")
