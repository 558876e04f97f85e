package papers

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench"
	"github.com/dmindex/dmindex/pkg/index"
)

// TestTinyComparisons does each of them with next to nothing.
func TestTinyComparisons(t *testing.T) {
	for _, c := range slices.Concat(smartFigures, chimeFigures, dolphinFigures, fiveFigures, claimComparisons[2:3]) {
		if len(c.parts) > 1 {
			c.parts = c.parts[len(c.parts)-1:]
		}
		base := smallBase()
		c.Defaults(base, func(string) bool { return false })
		if base.Clients != c.cluster.compute*c.cluster.each || base.MemoryServers != c.cluster.memory || base.Warmup != c.warmup {
			t.Errorf("%s: defaults %+v", c.Name, base)
		}
		base.Records, base.Ops, base.Warmup, base.Clients, base.ComputeServers, base.MemoryServers = 500, 60, 10, 2, 2, 1
		settings := slices.Clone(c.settings)
		// those of all designs differ by a number only
		if len(c.variants) == 0 && len(settings) > 2 {
			settings = slices.Delete(settings, 1, len(settings)-1)
		}
		for i, s := range settings { // as many clients and records as a test has
			settings[i].change = func(r *bench.Run) {
				s.change(r)
				r.Clients, r.Records, r.Warmup = 2, 500, min(r.Warmup, 10)
			}
		}
		c.settings = settings
		var out bytes.Buffer
		results, err := c.Do(t.Context(), *base, &out)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		variants := len(c.compared())
		if len(results) != len(c.parts)*variants*max(1, len(settings)) {
			t.Errorf("%s: %d results", c.Name, len(results))
		}
		if c.real == strings.Contains(out.String(), "simulated") {
			t.Errorf("%s: the table is\n%s", c.Name, out.String())
		}
		for _, r := range results {
			// above 1 where clients starve: throughput ends with the first client's work
			if o := r.Occupancy(); !c.real && !(o > 0 && o < 2) {
				t.Errorf("%s, %s: the NICs of memory servers are busy in %v of the time", c.Name, r.Run.Label, o)
			}
		}
		for _, p := range c.parts {
			if len(p.claims) > max(variants, len(c.variants)) {
				t.Errorf("%s: %s has claims of %d variants", c.Name, p.workload, len(p.claims))
			}
		}
	}
}

// TestEveryDesign: a comparison without variants has each registered design once, Sherman first,
// with caches of the same bytes: so many percent of those of the items.
func TestEveryDesign(t *testing.T) {
	c := Comparison{share: 4, columns: fiveColumns, parts: []comparedPart{{workload: "C", distribution: "uniform"}}}
	base := smallBase()
	base.Records, base.Ops, base.Warmup, base.Clients, base.ComputeServers, base.ValueBytes = 2000, 60, 10, 2, 2, 24
	var out bytes.Buffer
	results, err := c.Do(t.Context(), *base, &out)
	if err != nil {
		t.Fatal(err)
	}
	var designs []string
	for _, r := range results {
		designs = append(designs, r.Run.Design)
		if want := 2000 * (r.Run.KeyBytes + 24) * 4 / 100; r.Run.CacheBytes != want {
			t.Errorf("%s has a cache of %d bytes, want %d", r.Run.Design, r.Run.CacheBytes, want)
		}
	}
	if designs[0] != "sherman" || !slices.Equal(slices.Sorted(slices.Values(designs)), index.Names()) {
		t.Errorf("designs %v, registered are %v", designs, index.Names())
	}
	if text := out.String(); strings.Contains(text, "paper") || !strings.Contains(text, "x sherman") || !strings.Contains(text, "log bytes") {
		t.Errorf("the table is\n%s", text)
	}
}

// TestComparisonDoubles: LOAD inserts as many items as its setting loads.
func TestComparisonDoubles(t *testing.T) {
	c, setting := Comparison{doubles: true}, withItems(5000)
	r, err := c.run(*smallBase(), &comparedPart{workload: "LOAD", distribution: "uniform"}, &variant{design: "sherman"}, &setting)
	if err != nil || r.Records != 5000 || r.Ops != 5000 {
		t.Errorf("%d items are loaded and %d inserted: %v", r.Records, r.Ops, err)
	}
}
