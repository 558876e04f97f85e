package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// grid is a table under way: aligned text, or Markdown as the pages of docs/benchmarks have it.
type grid struct {
	out      io.Writer
	markdown bool
	aligned  *tabwriter.Writer
}

// newGrid begins a table with its head.
func newGrid(out io.Writer, markdown bool, head ...string) *grid {
	g := &grid{out: out, markdown: markdown}
	if !markdown {
		g.aligned = tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	}
	g.row(head...)
	if markdown {
		fmt.Fprintln(out, strings.Repeat("|---", len(head))+"|")
	}
	return g
}

// row writes a line.
func (g *grid) row(cells ...string) {
	if g.markdown {
		fmt.Fprintf(g.out, "| %s |\n", strings.Join(cells, " | "))
	} else {
		fmt.Fprintln(g.aligned, strings.Join(cells, "\t")+"\t")
	}
}

// end ends the table.
func (g *grid) end() error {
	if g.markdown {
		_, err := fmt.Fprintln(g.out)
		return err
	}
	return g.aligned.Flush()
}

// title is a heading of what follows.
func title(out io.Writer, markdown bool, text string) {
	if markdown {
		text = "**" + text + "**\n"
	}
	fmt.Fprintln(out, text)
}
