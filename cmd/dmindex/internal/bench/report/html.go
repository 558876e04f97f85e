// Package report writes results of benchmarks: tables, JSON, and a page with plots.
package report

import (
	"fmt"
	"html"
	"io"
	"strings"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench"
)

// style of the page; the colours of series differ in lightness, too.
const style = `:root{color-scheme:light dark;--ground:#fff;--text:#1c2330;--faint:#5d6675;--grid:#e3e6eb;
--s0:#1f6fd1;--s1:#d1521f;--s2:#0f8a5f;--s3:#8a4fc7;--s4:#a87a0c;--s5:#c23a7a;--s6:#0e8fa3;--s7:#5b6472}
@media(prefers-color-scheme:dark){:root{--ground:#14171c;--text:#e6e9ee;--faint:#9aa3b0;--grid:#2b313a;
--s0:#6aa9f5;--s1:#f08a5d;--s2:#4cc79a;--s3:#b993ee;--s4:#dcb347;--s5:#ef82b4;--s6:#56c4d6;--s7:#a3acb9}}
body{background:var(--ground);color:var(--text);font:14px/1.5 system-ui,sans-serif;max-width:1040px;margin:24px auto;padding:0 16px}
h1{font-size:22px}h2{font-size:17px;margin:32px 0 4px}p{color:var(--faint);margin:0 0 8px}
.plots{display:flex;flex-wrap:wrap;gap:24px}figure{margin:8px 0}figcaption{font-weight:600;margin-left:68px}
svg{max-width:100%;height:auto}text{font:12px system-ui,sans-serif;fill:var(--faint)}text.label{fill:var(--text)}
.grid{stroke:var(--grid)}.axis{fill:none;stroke:var(--faint)}path.series{fill:none;stroke-width:2}.dashed{stroke-dasharray:5 4}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px}
th,td{padding:3px 9px;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}th:first-child,td:first-child{text-align:left}
`

// WriteHTML writes a page that needs nothing else: the table, and plots of throughput, latency and
// requests.
func WriteHTML(out io.Writer, results []*bench.Result) error {
	var b strings.Builder
	PageHead(&b)
	fmt.Fprintf(&b, "<p>%s</p>\n", html.EscapeString(settingOf(results[0].Run)))
	list := panels(results)
	Section(&b, "Throughput", "Operations of all clients together in a second, over simulated time where the transport is sim.")
	for i := range list {
		list[i].throughput(&b)
	}
	b.WriteString("</div>\n")
	Section(&b, "Latency", "How long operations took: at p99, one in a hundred took longer. Both axes are logarithmic: one step to the right is ten times as rare.")
	for i := range list {
		list[i].latencyPlot().SVG(&b)
	}
	b.WriteString("</div>\n")
	Section(&b, "Requests", "What the fabric counted for an operation, on average.")
	verbBars(results).SVG(&b)
	b.WriteString("</div>\n<h2>Figures</h2>\n<div class=\"wide\"><table>\n")
	htmlTable(&b, results)
	b.WriteString("</table></div>\n</body>\n</html>\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// PageHead begins a page.
func PageHead(b *strings.Builder) {
	b.WriteString("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width\"/>\n")
	b.WriteString("<title>dmindex bench</title>\n<style>\n" + style)
	for i := range colours {
		fmt.Fprintf(b, "path.s%d{stroke:var(--s%d)}circle.s%d,rect.s%d{fill:var(--s%d)}\n", i, i, i, i, i)
	}
	b.WriteString("</style>\n</head>\n<body>\n<h1>dmindex bench</h1>\n")
}

// Section begins a part of the page, with plots side by side.
func Section(b *strings.Builder, title, text string) {
	fmt.Fprintf(b, "<h2>%s</h2>\n<p>%s</p>\n<div class=\"plots\">\n", title, text)
}

func htmlTable(b *strings.Builder, results []*bench.Result) {
	row := func(tag string, cells []string) {
		b.WriteString("<tr>")
		for _, c := range cells {
			fmt.Fprintf(b, "<%s>%s</%s>", tag, html.EscapeString(c), tag)
		}
		b.WriteString("</tr>\n")
	}
	row("th", runColumns)
	for _, r := range results {
		row("td", Cells(r, runColumns))
	}
}
