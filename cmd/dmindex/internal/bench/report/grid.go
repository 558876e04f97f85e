package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Grid is a table under way: aligned text, or Markdown as the pages of docs/benchmarks have it.
type Grid struct {
	out      io.Writer
	markdown bool
	aligned  *tabwriter.Writer
}

// NewGrid begins a table with its head.
func NewGrid(out io.Writer, markdown bool, head ...string) *Grid {
	g := &Grid{out: out, markdown: markdown}
	if !markdown {
		g.aligned = tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	}
	g.Row(head...)
	if markdown {
		fmt.Fprintln(out, strings.Repeat("|---", len(head))+"|")
	}
	return g
}

// Row writes a line.
func (g *Grid) Row(cells ...string) {
	if g.markdown {
		fmt.Fprintf(g.out, "| %s |\n", strings.Join(cells, " | "))
	} else {
		fmt.Fprintln(g.aligned, strings.Join(cells, "\t")+"\t")
	}
}

// End ends the table.
func (g *Grid) End() error {
	if g.markdown {
		_, err := fmt.Fprintln(g.out)
		return err
	}
	return g.aligned.Flush()
}

// Title is a heading of what follows.
func Title(out io.Writer, markdown bool, text string) {
	if markdown {
		text = "**" + text + "**\n"
	}
	fmt.Fprintln(out, text)
}
