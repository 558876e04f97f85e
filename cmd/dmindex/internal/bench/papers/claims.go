package papers

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/report"
)

// claimsFigure puts what the papers say beside what this program measures. A claim is a figure of
// one run of an experiment, or the ratio of two, so only the runs that claims are about are done,
// each once. The experiments themselves (Comparison) say what these runs are.
type claimsFigure struct {
	papers []paperFigure
	given  func(flag string) bool
}

// ClaimsFigure is what --figure calls it.
const ClaimsFigure = "five-claims"

// paperFigure is what a paper says of one of its figures.
type paperFigure struct {
	paper  string // and its figure
	figure string // the experiment that does it again
	sizes
	claims []paperClaim
}

// sizes are how much of an experiment's runs is done: as much as makes its ratios stable. 0 = its
// own default.
type sizes struct {
	records     uint64
	warmup, ops int
}

// paperClaim is one sentence of a paper.
type paperClaim struct {
	text   string
	theirs float64 // more and less: it gives a direction only
	what   measure
	of     place
	over   place  // the zero place = the claim is about the figure itself
	why    string // why ours differs, or what else its reader has to know
}

// A paper says that a ratio is above or below 1, and gives no number.
var above, below = math.Inf(1), math.Inf(-1)

// place is a run of an experiment.
type place struct {
	part    string // name of it; "" = the first
	variant string // label of it
	setting string // label of it, "" = the last
}

// run is one that several claims may be about.
type run struct {
	figure string
	sizes
	place
}

// runner is an experiment whose runs can be done one by one.
type runner interface {
	Experiment
	// runAt is the run at a place.
	runAt(base bench.Run, at place) (*bench.Run, error)
}

// measure is a figure of a result.
type measure func(r *bench.Result, s *bench.Summary) float64

func throughput(_ *bench.Result, s *bench.Summary) float64 { return s.Throughput / 1e6 }
func p50(_ *bench.Result, s *bench.Summary) float64        { return s.P50 }
func p99(_ *bench.Result, s *bench.Summary) float64        { return s.P99 }
func opBytes(_ *bench.Result, s *bench.Summary) float64    { return s.BytesPerOp }
func opReads(_ *bench.Result, s *bench.Summary) float64    { return s.Verbs.Read }
func opWrites(_ *bench.Result, s *bench.Summary) float64   { return s.Verbs.Write }
func opAtomics(_ *bench.Result, s *bench.Summary) float64  { return s.Verbs.Atomic }
func itemBytes(_ *bench.Result, s *bench.Summary) float64  { return s.MemoryBytesPerItem }

func cacheBytes(r *bench.Result, _ *bench.Summary) float64 { return r.CachePerItem() }

// delegated is the share of operations that shared a READ.
func delegated(r *bench.Result, _ *bench.Summary) float64 {
	return float64(r.Stats.Delegated) / float64(r.Ops)
}

// Sets implements Experiment: each experiment has its own servers and clients.
func (f *claimsFigure) Sets(flag string) bool {
	return setByAll(flag) || slices.Contains([]string{"clients", "servers", "key", "value"}, flag)
}

// Defaults implements Experiment.
func (f *claimsFigure) Defaults(_ *bench.Run, given func(flag string) bool) { f.given = given }

// Do implements Experiment.
func (f *claimsFigure) Do(ctx context.Context, base bench.Run, out io.Writer) (all []*bench.Result, err error) {
	report.Title(out, base.Markdown, "What the papers say, and what this program measures")
	fmt.Fprintf(out, "%s; simulated%s\n", verdicts, base.ModelChanges())
	if base.Markdown {
		fmt.Fprintln(out)
	}
	w := report.NewGrid(out, base.Markdown, "figure", "claim", "paper", "ours", "verdict", "why")
	done := map[run]*bench.Result{}
	for i := range f.papers {
		p := &f.papers[i]
		for k := range p.claims {
			c := &p.claims[k]
			v, err := c.measure(func(at place) (*bench.Result, error) {
				key := run{p.figure, p.sizes, at}
				r, ok := done[key]
				if !ok {
					if r, err = p.do(ctx, base, at, f.given); err != nil {
						return nil, err
					}
					done[key], all = r, append(all, r)
				}
				return r, nil
			})
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", p.paper, c.text, err)
			}
			w.Row(p.paper, c.text, c.says(), report.Digits3(v), c.verdict(v), c.why)
		}
	}
	return all, w.End()
}

// do does the run at a place of the figure's experiment.
func (p *paperFigure) do(ctx context.Context, base bench.Run, at place, given func(flag string) bool) (*bench.Result, error) {
	x, err := p.experiment()
	if err != nil {
		return nil, err
	}
	x.Defaults(&base, given)
	if p.records > 0 && !given("records") {
		base.Records = p.records
	}
	if p.ops > 0 && !given("ops") {
		base.Ops = p.ops
	}
	if p.warmup > 0 && !given("warmup") {
		base.Warmup = p.warmup
	}
	r, err := x.runAt(base, at)
	if err != nil {
		return nil, err
	}
	return r.Do(ctx)
}

// experiment is the one whose runs the claims are about.
func (p *paperFigure) experiment() (runner, error) {
	x, err := LookupFigure(p.figure)
	if err != nil {
		return nil, err
	}
	r, ok := x.(runner)
	if !ok {
		return nil, fmt.Errorf("figure %s has no runs that can be done one by one", p.figure)
	}
	return r, nil
}

// measure is ours of what the claim says.
func (c *paperClaim) measure(result func(at place) (*bench.Result, error)) (float64, error) {
	at := func(p place) (float64, error) {
		r, err := result(p)
		if err != nil {
			return 0, err
		}
		s := r.Summary()
		return c.what(r, &s), nil
	}
	v, err := at(c.of)
	if err != nil || c.over == (place{}) {
		return v, err
	}
	over, err := at(c.over)
	return v / over, err
}

// says is the paper's number.
func (c *paperClaim) says() string {
	switch c.theirs {
	case above:
		return "> 1"
	case below:
		return "< 1"
	}
	return report.Digits3(c.theirs)
}

// Bounds of verdicts: a ratio is on neither side of 1 within evenWithin, and a number is the same
// within sameWithin, or if it says that two are equal, within equalWithin.
const (
	evenWithin  = 1.02
	equalWithin = 1.1
	sameWithin  = 1.3
)

const verdicts = "holds: within 30% (equal: 10%); weaker, stronger: the same is ahead, off by more; even: nobody is ahead here; no: the other one is, or a figure is off by more than 30%"

// verdict judges a claim by our number.
func (c *paperClaim) verdict(ours float64) string {
	const holds, no = "holds", "no"
	within := sameWithin
	if c.theirs == 1 {
		within = equalWithin
	}
	same := ours/c.theirs <= within && c.theirs/ours <= within
	switch {
	case c.theirs == above && ours > evenWithin, c.theirs == below && ours < 1/evenWithin:
		return holds
	case c.over == (place{}) || c.theirs == 1: // there is no direction
		if same {
			return holds
		}
		return no
	case side(ours) == 0:
		return "even"
	case c.theirs == above, c.theirs == below, side(ours) != side(c.theirs):
		return no
	case same:
		return holds
	case math.Abs(math.Log(ours)) > math.Abs(math.Log(c.theirs)):
		return "stronger"
	}
	return "weaker"
}

// side is the side of 1 on which a ratio is; 0 = neither.
func side(ratio float64) int {
	switch {
	case ratio > evenWithin:
		return 1
	case ratio < 1/evenWithin:
		return -1
	}
	return 0
}
