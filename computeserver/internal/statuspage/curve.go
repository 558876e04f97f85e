package statuspage

import (
	"fmt"
	"html/template"
	"strings"
)

// Curve is one of the drawn rows of samples.
type Curve struct {
	Title string
	Last  string // the newest value
	Most  string // what the upper edge stands for
	Path  string // of an SVG of curveWidth by curveHeight; empty = there is nothing yet
}

const (
	curveWidth  = 360
	curveHeight = 90
)

// curves are those of the page.
func curves(samples []Sample) []Curve {
	milliseconds := func(v float64) string { return fmt.Sprintf("%.3g ms", v) }
	of := func(title string, value func(Sample) float64, text func(float64) string, most float64) Curve {
		c := Curve{Title: title, Last: "-", Most: text(most)}
		if len(samples) == 0 {
			return c
		}
		values := make([]float64, len(samples))
		for i, s := range samples {
			values[i] = value(s)
			most = max(most, values[i])
		}
		c.Last, c.Most, c.Path = text(values[len(values)-1]), text(most), path(values, most)
		return c
	}
	return []Curve{
		of("Requests a second", func(s Sample) float64 { return s.Operations }, rate, 1),
		of("p99 of requests, at most", func(s Sample) float64 { return 1000 * s.P99 }, milliseconds, 0.1),
		of("Hits of the cache", func(s Sample) float64 { return s.HitRatio }, share, 1),
		of("Errors a second", func(s Sample) float64 { return s.Errors }, rate, 1),
	}
}

// path draws values, the newest at the right edge, and most at the upper edge. Where a value is
// below 0 there is a gap.
func path(values []float64, most float64) string {
	var b strings.Builder
	step := float64(curveWidth) / (Kept - 1)
	draws := false
	for i, v := range values {
		if v < 0 {
			draws = false
			continue
		}
		command := byte('L')
		if !draws {
			command, draws = 'M', true
		}
		x := curveWidth - step*float64(len(values)-1-i)
		fmt.Fprintf(&b, "%c%.1f %.1f", command, x, curveHeight*(1-v/most))
		if command == 'M' {
			b.WriteString("h0") // a value alone is a dot
		}
	}
	return b.String()
}

// curve is the drawing of c.
func curve(c Curve) template.HTML {
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 -2 %d %d" role="img" aria-label="%s"><path d="%s"/></svg>`,
		curveWidth, curveHeight+4, template.HTMLEscapeString(c.Title), template.HTMLEscapeString(c.Path)))
}
