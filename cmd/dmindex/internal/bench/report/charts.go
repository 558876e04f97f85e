package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench"
)

// panel is the results that are compared with each other in one plot: those of one workload on one
// fabric.
type panel struct {
	title string
	lines []line
}

// line is the results of one design with the same switches, by clients in the order in which they
// were measured.
type line struct {
	name    string
	results []*bench.Result
}

// panels sorts results into plots, in the order in which they came.
func panels(results []*bench.Result) []panel {
	var list []panel
	for _, r := range results {
		s := r.Summary()
		p := find(&list, fmt.Sprintf("%s, %s keys, over %s", s.Workload, s.Distribution, s.Transport),
			func(p *panel) string { return p.title }, func(title string) panel { return panel{title: title} })
		l := find(&p.lines, r.Name(), func(l *line) string { return l.name }, func(name string) line { return line{name: name} })
		l.results = append(l.results, r)
	}
	return list
}

// find is the element of a key, made if there is none yet.
func find[T any](list *[]T, key string, of func(*T) string, make func(string) T) *T {
	for i := range *list {
		if of(&(*list)[i]) == key {
			return &(*list)[i]
		}
	}
	*list = append(*list, make(key))
	return &(*list)[len(*list)-1]
}

const throughputLabel = "throughput (million operations/s)"

// throughputPlot shows throughput against clients, or if these are the same, against the size of
// caches, the threads of memory servers, or the processor time of operations.
func (p *panel) throughputPlot() *Plot {
	d := &Plot{Title: p.title}
	of, label := func(r *bench.Run) float64 { return float64(r.Clients) }, "clients"
	if p.oneNumber(of) {
		of, label = func(r *bench.Run) float64 { return r.CachePercent }, "cache of each compute server (% of all leaves)"
	}
	if p.oneNumber(of) {
		of, label = func(r *bench.Run) float64 { return float64(r.MemoryThreads) }, "threads of each memory server"
	}
	if p.oneNumber(of) {
		of, label = (*bench.Run).ProcessorFactor, "times the measured processor time"
	}
	var widest, most float64
	for _, l := range p.lines {
		s := Series{Name: l.name, dots: true}
		for _, r := range l.results {
			x, y := of(r.Run), r.Throughput/1e6
			s.Points = append(s.Points, [2]float64{x, y})
			widest, most = math.Max(widest, x), math.Max(most, y)
		}
		d.Series = append(d.Series, s)
	}
	d.X, d.Y = Linear(label, widest), Linear(throughputLabel, most)
	return d
}

// rarest is the least share of operations that a plot of latencies shows.
const rarest = 1e-4

// latencyPlot shows which share of operations took longer than a time, of each line's run with the
// most clients.
func (p *panel) latencyPlot() *Plot {
	d := &Plot{Title: p.title}
	least, most := math.Inf(1), 0.0
	for _, l := range p.lines {
		r := l.results[0]
		for _, o := range l.results {
			if o.Run.Clients > r.Run.Clients {
				r = o
			}
		}
		name := l.name
		if !p.onePoint() {
			name = fmt.Sprintf("%s, %d clients", l.name, r.Run.Clients)
		}
		s := Series{Name: name, Points: r.Latency.Tail(rarest), steps: true}
		for _, pt := range s.Points {
			least, most = math.Min(least, pt[0]), math.Max(most, pt[0])
		}
		d.Series = append(d.Series, s)
	}
	d.X = logarithmic("latency (µs)", least*0.9, most*1.1)
	d.Y = axis{label: "percentile of operations", from: 1, to: rarest, log: true, ticks: []tick{
		{1, "0"}, {0.5, "p50"}, {0.1, "p90"}, {0.01, "p99"}, {0.001, "p99.9"}, {rarest, "p99.99"}}}
	return d
}

// oneNumber reports whether something is the same in all results of the panel.
func (p *panel) oneNumber(of func(r *bench.Run) float64) bool {
	for _, l := range p.lines {
		for _, r := range l.results {
			if of(r.Run) != of(p.lines[0].results[0].Run) {
				return false
			}
		}
	}
	return true
}

// onePoint reports whether nothing grows: each line is one result, with as many clients and as much
// cache.
func (p *panel) onePoint() bool {
	for _, l := range p.lines {
		if len(l.results) > 1 {
			return false
		}
	}
	return p.oneNumber(func(r *bench.Run) float64 { return float64(r.Clients) }) && p.oneNumber(func(r *bench.Run) float64 { return r.CachePercent })
}

// throughput draws throughput against what grows, or bars if nothing does.
func (p *panel) throughput(b *strings.Builder) {
	if !p.onePoint() {
		p.throughputPlot().SVG(b)
		return
	}
	d := &bars{title: fmt.Sprintf("%s, %d clients", p.title, p.lines[0].results[0].Run.Clients), label: throughputLabel}
	for _, l := range p.lines {
		d.rows = append(d.rows, bar{l.name, []float64{l.results[0].Throughput / 1e6}})
	}
	d.SVG(b)
}

// verbBars shows what each result posted for an operation, by kind.
func verbBars(results []*bench.Result) *bars {
	d := &bars{label: "requests per operation", parts: []string{"READ", "WRITE", "atomic", "RPC", "log"}}
	for _, r := range results {
		s := r.Summary()
		d.rows = append(d.rows, bar{fmt.Sprintf("%s, %s, %s, %d clients", r.Name(), s.Transport, s.Workload, s.Clients),
			[]float64{s.Verbs.Read, s.Verbs.Write, s.Verbs.Atomic, s.Verbs.RPC, s.Verbs.Log}})
	}
	return d
}
