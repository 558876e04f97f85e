package papers

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/report"
	"github.com/dmindex/dmindex/pkg/index"
)

// TestTinyFigures does each experiment of Sherman's paper with next to nothing.
func TestTinyFigures(t *testing.T) {
	for i := range shermanFigures {
		f := &shermanFigures[i]
		base := smallBase()
		base.Records, base.Ops, base.Warmup, base.Clients = 500, 200, 20, 4
		var out bytes.Buffer
		results, err := f.Do(t.Context(), *base, &out)
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		if lines := strings.Count(out.String(), " FG+ "); len(results) != len(f.parts)*len(f.variants) || lines < len(f.parts) {
			t.Errorf("%s: %d results\n%s", f.Name, len(results), &out)
		}
		for _, p := range f.parts {
			if !strings.Contains(out.String(), p.workload) {
				t.Errorf("%s: no %s in\n%s", f.Name, p.workload, &out)
			}
			if len(p.steps) > len(f.variants) {
				t.Errorf("%s: %s has claims of %d steps", f.Name, p.workload, len(p.steps))
			}
		}
	}
	if _, err := LookupFigure("sherman-7"); err == nil || !strings.Contains(err.Error(), "there are sherman-5, sherman-6, sherman-table3, dex-6, dex-6-published, dex-6-processor, dex-7") {
		t.Error(err)
	}
}

// TestSteps: techniques are turned on one after the other, and the design knows all of them.
func TestSteps(t *testing.T) {
	design, err := index.Lookup("sherman")
	if err != nil {
		t.Fatal(err)
	}
	for n, v := range shermanSteps {
		if have := v.switches(); len(have) != len(design.Switches)-n {
			t.Errorf("step %s has %v off", v.label, have)
		}
		for name, on := range v.switches() {
			if on || !slices.Contains(design.Switches, name) {
				t.Errorf("step %s: %s is %v", v.label, name, on)
			}
		}
	}
	if off := shermanSteps[2].off; slices.Contains(off, "combine") || slices.Contains(off, "onChip") || !slices.Contains(off, "hierarchical") {
		t.Errorf("the third step has %v off", off)
	}
}

// TestTinyGrowths does each experiment of DEX's paper with next to nothing.
func TestTinyGrowths(t *testing.T) {
	for i := range dexFigures {
		f := dexFigures[i]
		base := smallBase()
		f.Defaults(base, func(flag string) bool { return flag != "warmup" })
		base.Records, base.Ops, base.Warmup, base.Clients = 500, 150, 20, 4
		f.settings = f.settingsOf(base)
		f.settings = f.settings[max(0, len(f.settings)-2):]
		grow := *f.grow
		grow.settings = func(*bench.Run) []setting { return f.settings }
		f.grow = &grow
		var out bytes.Buffer
		results, err := f.Do(t.Context(), *base, &out)
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		if len(results) != len(f.parts)*len(f.variants)*len(f.settings) {
			t.Errorf("%s: %d results", f.Name, len(results))
		}
		for _, v := range f.variants {
			if strings.Count(out.String(), v.label+"  ") < len(f.parts) {
				t.Errorf("%s: no %s in\n%s", f.Name, v.label, &out)
			}
		}
		var page bytes.Buffer
		if err := report.WriteHTML(&page, results); err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`operations/s\) against ([^"]{5})`).FindAllStringSubmatch(page.String(), -1) {
			if !strings.HasPrefix(f.grow.title, m[1]) {
				t.Errorf("%s: a plot of throughput against %s", f.Name, m[1])
			}
		}
		for _, p := range f.parts {
			if len(p.claims) > len(f.variants) {
				t.Errorf("%s: %s has claims of %d variants", f.Name, p.name, len(p.claims))
			}
		}
	}
}

// TestGrowth: compute servers come one by one, when those that there are have their clients.
func TestGrowth(t *testing.T) {
	sizes := func(g *growth, base *bench.Run) (have [][2]int, percent []float64) {
		for _, s := range g.settings(base) {
			r := *base
			s.change(&r)
			have, percent = append(have, [2]int{r.Clients, r.ComputeServers}), append(percent, r.CachePercent)
		}
		return have, percent
	}
	if have, _ := sizes(growingClients(byClients...), &bench.Run{Clients: 144, ComputeServers: 4}); !slices.Equal(have, [][2]int{{2, 1}, {36, 1}, {72, 2}, {144, 4}}) {
		t.Errorf("clients and compute servers %v", have)
	}
	if have, _ := sizes(growingClients(byClients...), &bench.Run{Clients: 4, ComputeServers: 2}); !slices.Equal(have, [][2]int{{1, 1}, {2, 1}, {4, 2}}) {
		t.Errorf("clients and compute servers %v", have)
	}
	if have, percent := sizes(growingCache(1, 32), &bench.Run{Clients: 4, ComputeServers: 2}); !slices.Equal(have, [][2]int{{4, 2}, {4, 2}}) || !slices.Equal(percent, []float64{1, 32}) {
		t.Errorf("%v, %v", have, percent)
	}
}
