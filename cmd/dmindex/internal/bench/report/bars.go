package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// bars is an SVG diagram of horizontal bars, each of parts behind each other.
type bars struct {
	title string // "" = none
	label string // of the axis, with its unit
	parts []string
	rows  []bar
}

// bar is one row. With one part its colour is that of its place, else parts have colours.
type bar struct {
	name  string
	parts []float64
}

// Of a diagram of bars, in pixels.
const (
	barRow, barLegend, barInner = 22, 26, 300
	barGlyph                    = 6.7 // width of a letter, about
)

// SVG draws the bars.
func (d *bars) SVG(b *strings.Builder) {
	longest, most := 0, 0.0
	for _, r := range d.rows {
		longest = max(longest, len([]rune(r.name)))
		sum := 0.0
		for _, v := range r.parts {
			sum += v
		}
		most = math.Max(most, sum)
	}
	x := Linear(d.label, most)
	left, top := 16+int(barGlyph*float64(longest)), 6
	if len(d.parts) > 1 {
		top = barLegend
	}
	at := func(v float64) float64 { return float64(left) + x.share(v)*barInner }
	width, bottom := left+barInner+24, top+barRow*len(d.rows)
	b.WriteString("<figure>")
	if d.title != "" {
		fmt.Fprintf(b, `<figcaption>%s</figcaption>`, html.EscapeString(d.title))
	}
	fmt.Fprintf(b, `<svg viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`+"\n",
		width, bottom+44, width, bottom+44, html.EscapeString(d.title+" "+d.label))
	if len(d.parts) > 1 {
		for i, name := range d.parts {
			fmt.Fprintf(b, `<rect class="s%d" x="%d" y="4" width="12" height="12"/><text x="%d" y="14">%s</text>`+"\n",
				i, left+68*i, left+68*i+17, html.EscapeString(name))
		}
	}
	for _, t := range x.ticks {
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			at(t.at), top, at(t.at), bottom, at(t.at), bottom+16, t.text)
	}
	for i, r := range d.rows {
		y, from := top+barRow*i, 0.0
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, left-8, y+15, html.EscapeString(r.name))
		for k, v := range r.parts {
			if len(r.parts) == 1 {
				k = i % colours
			}
			fmt.Fprintf(b, `<rect class="s%d" x="%.1f" y="%d" width="%.1f" height="%d"><title>%.4g</title></rect>`,
				k, at(from), y+3, at(from+v)-at(from), barRow-7, v)
			from += v
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(b, `<path class="axis" d="M%d %dV%dH%d"/><text class="label" x="%d" y="%d" text-anchor="middle">%s</text></svg></figure>`+"\n",
		left, top, bottom, left+barInner, left+barInner/2, bottom+36, html.EscapeString(x.label))
}
