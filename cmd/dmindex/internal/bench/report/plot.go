package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Plot is one SVG diagram with two axes. Colours come from the page's style sheet: class s0 .. s7
// for series.
type Plot struct {
	Title  string
	X, Y   axis
	Series []Series
	Marks  []float64 // places on the x axis with a dashed line upwards
}

// axis maps values to pixels.
type axis struct {
	label    string // with its unit
	from, to float64
	log      bool
	ticks    []tick
}

type tick struct {
	at   float64
	text string
}

// Series is a line with its name; with dots, where each point is a measurement.
type Series struct {
	Name   string
	Points [][2]float64
	dots   bool
	steps  bool // the line goes across, then up: between two points nothing was measured
}

// Of a plot, in pixels.
const (
	plotWidth, plotHeight              = 460, 300
	plotLeft, plotRight                = 68, 14
	plotTop, plotBottom                = 14, 46
	plotInnerWidth                     = plotWidth - plotLeft - plotRight
	plotInnerHeight                    = plotHeight - plotTop - plotBottom
	colours                            = 8 // of series; more than that repeat, dashed
	legendLine, legendTop, legendInset = 18, 10, 4
)

// share is where v lies between the ends of the axis, 0 to 1.
func (a *axis) share(v float64) float64 {
	if a.log {
		return math.Log(v/a.from) / math.Log(a.to/a.from)
	}
	return (v - a.from) / (a.to - a.from)
}

// Linear makes an axis from zero to a round number above most.
func Linear(label string, most float64) axis {
	step := niceStep(most / 5)
	a := axis{label: label, to: step * math.Max(1, math.Ceil(most/step*0.999))}
	for i := 0; float64(i)*step <= a.to*1.0001; i++ {
		a.ticks = append(a.ticks, tick{float64(i) * step, fmt.Sprintf("%.4g", float64(i)*step)})
	}
	return a
}

// niceStep is the least of 1, 2 and 5 times a power of ten that is at least v.
func niceStep(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*0.9999 {
			return m * power
		}
	}
	return 10 * power
}

// logarithmic makes an axis that covers two positive numbers, with ticks at powers of ten, and
// between them as there is room.
func logarithmic(label string, least, most float64) axis {
	a := axis{label: label, log: true, from: least, to: math.Max(most, least*1.01)}
	decades := math.Log10(a.to / a.from)
	for e := math.Floor(math.Log10(a.from)); e <= math.Log10(a.to); e++ {
		for m := 1.0; m < 10; m++ {
			v := m * math.Pow(10, e)
			if v < a.from*0.999 || v > a.to*1.001 || m > 1 && decades > 2.5 || m != 1 && m != 2 && m != 5 && decades > 0.8 {
				continue
			}
			a.ticks = append(a.ticks, tick{v, thousands(v)})
		}
	}
	return a
}

// thousands shows a number as people do in a diagram: 20, 500, 2k, 1M.
func thousands(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.4gM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.4gk", v/1e3)
	}
	return fmt.Sprintf("%.4g", v)
}

// SVG draws the plot.
func (p *Plot) SVG(b *strings.Builder) {
	height := plotHeight
	if len(p.Series) > 1 {
		height += legendTop + legendLine*len(p.Series)
	}
	fmt.Fprintf(b, `<figure><figcaption>%s</figcaption><svg viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`,
		html.EscapeString(p.Title), plotWidth, height, plotWidth, height, html.EscapeString(p.Title+": "+p.Y.label+" against "+p.X.label))
	b.WriteByte('\n')
	p.axes(b)
	for i := range p.Series {
		p.line(b, i)
	}
	b.WriteString("</svg></figure>\n")
}

func (p *Plot) at(x, y float64) (float64, float64) {
	return plotLeft + p.X.share(x)*plotInnerWidth, plotTop + (1-p.Y.share(y))*plotInnerHeight
}

func (p *Plot) axes(b *strings.Builder) {
	for _, t := range p.Y.ticks {
		_, y := p.at(p.X.from, t.at)
		fmt.Fprintf(b, `<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			plotLeft, y, plotWidth-plotRight, y, plotLeft-6, y+4, html.EscapeString(t.text))
	}
	for _, t := range p.X.ticks {
		x, _ := p.at(t.at, p.Y.from)
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			x, plotTop, x, plotTop+plotInnerHeight, x, plotTop+plotInnerHeight+16, html.EscapeString(t.text))
	}
	for _, v := range p.Marks {
		x, _ := p.at(v, p.Y.from)
		fmt.Fprintf(b, `<path class="axis dashed" d="M%.1f %dV%d"/>`+"\n", x, plotTop, plotTop+plotInnerHeight)
	}
	fmt.Fprintf(b, `<path class="axis" d="M%d %dV%dH%d"/>`+"\n", plotLeft, plotTop, plotTop+plotInnerHeight, plotWidth-plotRight)
	fmt.Fprintf(b, `<text class="label" x="%d" y="%d" text-anchor="middle">%s</text>`+"\n",
		plotLeft+plotInnerWidth/2, plotTop+plotInnerHeight+36, html.EscapeString(p.X.label))
	fmt.Fprintf(b, `<text class="label" transform="translate(14 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n",
		plotTop+plotInnerHeight/2, html.EscapeString(p.Y.label))
}

// line draws series i and its line in the legend, which a plot of one series does not have.
func (p *Plot) line(b *strings.Builder, i int) {
	s := &p.Series[i]
	class := fmt.Sprintf("s%d", i%colours)
	if i >= colours {
		class += " dashed"
	}
	b.WriteString(`<path class="series ` + class + `" d="`)
	for n, pt := range s.Points {
		x, y := p.at(pt[0], pt[1])
		if s.steps && n > 0 {
			fmt.Fprintf(b, "H%.1fV%.1f", x, y)
		} else {
			fmt.Fprintf(b, "%c%.1f %.1f", "ML"[min(n, 1)], x, y)
		}
	}
	b.WriteString("\"/>\n")
	if s.dots {
		for _, pt := range s.Points {
			x, y := p.at(pt[0], pt[1])
			fmt.Fprintf(b, `<circle class="%s" cx="%.1f" cy="%.1f" r="3.5"><title>%s: %.4g, %.4g</title></circle>`+"\n",
				class, x, y, html.EscapeString(s.Name), pt[0], pt[1])
		}
	}
	if len(p.Series) > 1 {
		y := plotHeight + legendTop + legendLine*i
		fmt.Fprintf(b, `<path class="series %s" d="M%d %dh22"/><text x="%d" y="%d">%s</text>`+"\n",
			class, plotLeft, y-legendInset, plotLeft+30, y, html.EscapeString(s.Name))
	}
}
