package papers

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// givenSizes says of the flags of sizes that they were given, so that figures stay tiny.
func givenSizes(flag string) bool {
	return slices.Contains([]string{"records", "ops", "warmup", "clients", "servers"}, flag)
}

// TestClaimsHaveRuns: every place that a claim names is a run of its experiment, which Check takes.
func TestClaimsHaveRuns(t *testing.T) {
	x, err := LookupFigure(ClaimsFigure)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range x.(*claimsFigure).papers {
		experiment, err := p.experiment()
		if err != nil {
			t.Errorf("%s: %v", p.paper, err)
			continue
		}
		for _, c := range p.claims {
			for _, at := range []place{c.of, c.over} {
				if at == (place{}) {
					continue
				}
				base := *smallBase()
				experiment.Defaults(&base, func(string) bool { return false })
				r, err := experiment.runAt(base, at)
				if err == nil {
					err = r.Check()
				}
				if err != nil {
					t.Errorf("%s, %s: %v", p.paper, c.text, err)
				}
			}
			if c.theirs <= 0 && c.theirs != below || c.what == nil {
				t.Errorf("%s, %s: nothing to compare with", p.paper, c.text)
			}
		}
	}
}

// TestClaimsAreMeasured: a place that several claims name is run once.
func TestClaimsAreMeasured(t *testing.T) {
	smart, sherman := place{"C", "SMART", ""}, place{"C", "Sherman", ""}
	f := claimsFigure{papers: []paperFigure{
		{paper: "first", figure: "smart-14", claims: []paperClaim{
			{"faster", above, throughput, smart, sherman, "because"},
			{"as many READs", 1, opReads, sherman, place{}, ""},
		}},
		{paper: "second", figure: "smart-14", claims: []paperClaim{{"bytes", below, opBytes, smart, sherman, ""}}},
		{paper: "third", figure: "dolphin-7", claims: []paperClaim{{"one", 1, throughput, place{"C", "nobody", ""}, place{}, ""}}},
	}}
	base := *smallBase()
	base.Records, base.Ops, base.Warmup, base.Clients, base.ComputeServers, base.Markdown = 500, 60, 10, 2, 2, true
	f.Defaults(&base, givenSizes)
	var out bytes.Buffer
	if _, err := f.Do(t.Context(), base, &out); err == nil || !strings.Contains(err.Error(), "third, one: figure dolphin-7 has no run") {
		t.Fatalf("%v", err)
	}
	out.Reset()
	f.papers = f.papers[:2]
	results, err := f.Do(t.Context(), base, &out)
	if err != nil || len(results) != 2 {
		t.Fatalf("%v, %d results", err, len(results))
	}
	for _, want := range []string{"| first | faster | > 1 |", "| first | as many READs | 1 | 1 | holds |", "| second | bytes | < 1 |", "| because |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestVerdicts(t *testing.T) {
	ratio := place{variant: "other"}
	for _, c := range []struct {
		theirs, ours float64
		over         place
		want         string
	}{
		{above, 1.1, ratio, "holds"}, {above, 1.01, ratio, "even"}, {above, 0.9, ratio, "no"}, {below, 0.9, ratio, "holds"}, {below, 1.1, ratio, "no"},
		{2, 2.5, ratio, "holds"}, {2, 1.6, ratio, "holds"}, {2, 1.5, ratio, "weaker"}, {2, 2.7, ratio, "stronger"},
		{0.5, 0.3, ratio, "stronger"}, {0.5, 0.7, ratio, "weaker"}, {0.9, 1.1, ratio, "no"}, {1.1, 1, ratio, "even"}, {1, 1.05, ratio, "holds"}, {1, 0.95, ratio, "holds"}, {1, 1.2, ratio, "no"},
		{100, 120, place{}, "holds"}, {100, 140, place{}, "no"}, {100, 70, place{}, "no"},
	} {
		claim := paperClaim{theirs: c.theirs, over: c.over}
		if got := claim.verdict(c.ours); got != c.want {
			t.Errorf("theirs %v, ours %v: %s, want %s", c.theirs, c.ours, got, c.want)
		}
	}
}
