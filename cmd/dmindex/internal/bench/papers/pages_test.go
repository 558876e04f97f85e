package papers

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPagesHaveFigures: docs/benchmarks/figures has each figure that hack/figures makes, with the
// command by which it is made today, and no other. A page of docs/benchmarks leads to each.
func TestPagesHaveFigures(t *testing.T) {
	root := filepath.Join("..", "..", "..", "..", "..")
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	list := func(pattern string) []string {
		found, err := filepath.Glob(filepath.Join(root, "docs", "benchmarks", pattern))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	var pages strings.Builder
	for _, page := range list("*.md") {
		pages.WriteString(read(page))
	}
	var made, shown []string
	for _, m := range regexp.MustCompile(`(?m)^what\[([a-z0-9-]+)\]='(.*)'$`).FindAllStringSubmatch(read(filepath.Join(root, "hack", "figures")), -1) {
		name, flags := m[1], m[2]
		made = append(made, name+".md")
		if !strings.Contains(pages.String(), "](figures/"+name+".md)") {
			t.Errorf("no page of docs/benchmarks leads to the figure %s", name)
		}
		if figure := read(filepath.Join(root, "docs", "benchmarks", "figures", name+".md")); !strings.HasPrefix(figure, "# "+name+"\n\n    bin/dmindex bench "+flags+" --markdown\n\n") {
			t.Errorf("the figure %s was made by another command than hack/figures has: make it, and write it", name)
		}
	}
	for _, figure := range list(filepath.Join("figures", "*.md")) {
		shown = append(shown, filepath.Base(figure))
	}
	slices.Sort(made)
	slices.Sort(shown)
	if !slices.Equal(made, shown) || len(made) < 10 {
		t.Errorf("hack/figures makes %v, and docs/benchmarks/figures has %v", made, shown)
	}
}
