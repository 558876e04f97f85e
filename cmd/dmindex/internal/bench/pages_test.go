package bench

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// TestPagesHaveFigures: the pages of docs/benchmarks have a place for each figure that hack/figures
// makes, and for no other.
func TestPagesHaveFigures(t *testing.T) {
	root := filepath.Join("..", "..", "..", "..")
	script, err := os.ReadFile(filepath.Join(root, "hack", "figures"))
	if err != nil {
		t.Fatal(err)
	}
	names := func(pattern string, text []byte) (list []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			list = append(list, string(m[1]))
		}
		return list
	}
	made := names(`(?m)^what\[([a-z0-9-]+)\]=`, script)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "benchmarks", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		places := names(`(?m)^<!-- figure ([a-z0-9-]+) -->$`, text)
		if ends := names(`(?m)^<!-- (end) -->$`, text); len(ends) != len(places) {
			t.Errorf("%s: %d places for figures begin, and %d end", page, len(places), len(ends))
		}
		shown = append(shown, places...)
	}
	slices.Sort(made)
	slices.Sort(shown)
	if !slices.Equal(made, shown) || len(made) < 10 {
		t.Errorf("hack/figures makes %v, and the pages show %v", made, shown)
	}
}
