package lint

import (
	"fmt"
	"strings"
	"testing"
)

const (
	widest  = 100 // columns of a line with a comment, a tab being four
	longest = 400 // lines of a file
)

// tools are comments that tools read. They cannot be wrapped.
var tools = []string{"//go:", "//env:", "//nolint", "// +", "//+"}

// TestCommentWidth: comments wrap at widest columns.
func TestCommentWidth(t *testing.T) {
	for _, f := range sources(t) {
		if f.generated {
			continue
		}
		for _, problem := range wideComments(f) {
			t.Error(problem)
		}
	}
}

// wideComments names the lines of f that have a comment and are too wide.
func wideComments(f *file) (problems []string) {
	lines := strings.Split(f.src, "\n")
	for _, group := range f.ast.Comments {
		for _, c := range group.List {
			if readByTool(c.Text) {
				continue
			}
			first := f.fset.Position(c.Pos()).Line
			for n := range 1 + strings.Count(c.Text, "\n") {
				if w := columns(lines[first-1+n]); w > widest {
					problems = append(problems, fmt.Sprintf("%s:%d: a line with a comment has %d columns: wrap it at %d, or put the comment above it", f.path, first+n, w, widest))
				}
			}
		}
	}
	return problems
}

func readByTool(comment string) bool {
	for _, prefix := range tools {
		if strings.HasPrefix(comment, prefix) {
			return true
		}
	}
	return false
}

// columns is the width of line.
func columns(line string) (n int) {
	for _, r := range line {
		if r == '\t' {
			n += 3
		}
		n++
	}
	return n
}

// TestFileLength: a file is one idea that can be read at once.
func TestFileLength(t *testing.T) {
	for _, f := range sources(t) {
		if f.generated {
			continue
		}
		if n := strings.Count(f.src, "\n"); n > longest {
			t.Errorf("%s has %d lines: divide it, a file has at most %d", f.path, n, longest)
		}
	}
}
