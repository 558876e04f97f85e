package bench

import (
	"fmt"
	"html"
	"math"
	"strings"
	"time"
)

// panel is the results that are compared with each other in one plot: those of one workload on one fabric.
type panel struct {
	title string
	lines []line
}

// line is the results of one design with the same switches, by clients in the order in which they were measured.
type line struct {
	name    string
	results []*Result
}

// panels sorts results into plots, in the order in which they came.
func panels(results []*Result) []panel {
	var list []panel
	for _, r := range results {
		s := r.Summary()
		p := find(&list, fmt.Sprintf("%s, %s keys, over %s", s.Workload, s.Distribution, s.Transport),
			func(p *panel) string { return p.title }, func(title string) panel { return panel{title: title} })
		l := find(&p.lines, s.name(), func(l *line) string { return l.name }, func(name string) line { return line{name: name} })
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

// throughputPlot shows throughput against clients.
func (p *panel) throughputPlot() *plot {
	d := &plot{title: p.title}
	var clients, most float64
	for _, l := range p.lines {
		s := series{name: l.name, dots: true}
		for _, r := range l.results {
			x, y := float64(r.Run.Clients), r.Throughput/1e6
			s.points = append(s.points, [2]float64{x, y})
			clients, most = math.Max(clients, x), math.Max(most, y)
		}
		d.series = append(d.series, s)
	}
	d.x, d.y = linear("clients", clients), linear("throughput (million operations/s)", most)
	return d
}

// rarest is the least share of operations that a plot of latencies shows.
const rarest = 1e-4

// latencyPlot shows which share of operations took longer than a time, of each line's run with the most clients.
func (p *panel) latencyPlot() *plot {
	d := &plot{title: p.title}
	least, most := math.Inf(1), 0.0
	for _, l := range p.lines {
		r := l.results[0]
		for _, o := range l.results {
			if o.Run.Clients > r.Run.Clients {
				r = o
			}
		}
		s := series{name: fmt.Sprintf("%s, %d clients", l.name, r.Run.Clients), points: r.Latency.tail(), steps: true}
		for _, pt := range s.points {
			least, most = math.Min(least, pt[0]), math.Max(most, pt[0])
		}
		d.series = append(d.series, s)
	}
	d.x = logarithmic("latency (µs)", least*0.9, most*1.1)
	d.y = axis{label: "percentile of operations", from: 1, to: rarest, log: true, ticks: []tick{
		{1, "0"}, {0.5, "p50"}, {0.1, "p90"}, {0.01, "p99"}, {0.001, "p99.9"}, {rarest, "p99.99"}}}
	return d
}

// tail is points of time in microseconds and the share of durations that are longer, downwards to rarest.
func (h *histogram) tail() (points [][2]float64) {
	left := h.total
	share, step := 1.0, 0.97
	for i, n := range h.counts {
		if n == 0 {
			continue
		}
		low, _ := bounds(i)
		if now := float64(left) / float64(h.total); len(points) == 0 || now <= share*step {
			share = now
			points = append(points, [2]float64{float64(max(low, 1)) / float64(time.Microsecond), math.Max(now, rarest)})
			if now <= rarest {
				return points
			}
		}
		left -= uint64(n)
	}
	return append(points, [2]float64{points[len(points)-1][0], math.Max(1/float64(h.total), rarest)})
}

// verbBars draws a bar for each result: what it posted for an operation, by kind.
func verbBars(b *strings.Builder, results []*Result) {
	const row, left, width, legend = 22, 290, 560, 26
	most := 0.0
	for _, r := range results {
		v := r.Summary().Verbs
		most = math.Max(most, v.Read+v.Write+v.Atomic+v.RPC)
	}
	x := linear("requests per operation", most)
	scale := func(v float64) float64 { return left + x.share(v)*(width-left-20) }
	bottom := legend + row*len(results)
	fmt.Fprintf(b, `<figure><svg viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="requests per operation, by kind">`+"\n",
		width, bottom+44, width, bottom+44)
	for i, name := range []string{"READ", "WRITE", "atomic", "RPC"} {
		fmt.Fprintf(b, `<rect class="s%d" x="%d" y="4" width="12" height="12"/><text x="%d" y="14">%s</text>`+"\n", i, left+68*i, left+68*i+17, name)
	}
	for _, t := range x.ticks {
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			scale(t.at), legend, scale(t.at), bottom, scale(t.at), bottom+16, t.text)
	}
	for i, r := range results {
		s := r.Summary()
		y, from := legend+row*i, 0.0
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, left-8, y+15,
			html.EscapeString(fmt.Sprintf("%s, %s, %s, %d clients", s.name(), s.Transport, s.Workload, s.Clients)))
		for k, v := range []float64{s.Verbs.Read, s.Verbs.Write, s.Verbs.Atomic, s.Verbs.RPC} {
			fmt.Fprintf(b, `<rect class="s%d" x="%.1f" y="%d" width="%.1f" height="%d"><title>%.3g</title></rect>`, k, scale(from), y+3, scale(from+v)-scale(from), row-7, v)
			from += v
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(b, `<path class="axis" d="M%d %dV%dH%d"/><text class="label" x="%d" y="%d" text-anchor="middle">%s</text></svg></figure>`+"\n",
		left, legend, bottom, width-20, left+(width-20-left)/2, bottom+36, x.label)
}
