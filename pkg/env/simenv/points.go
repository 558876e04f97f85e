package simenv

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/dmindex/dmindex/pkg/env/schedule"
)

// points stops goroutines at schedule points, as the seed says.
//
// A uniform choice among the millions of points that a run reaches finds nothing: most of them are
// of a few loops. So a seed chooses by place. It arms some sites of the program, more of those with
// atomic accesses than of others, each with a rate of its own, and a goroutine that reaches one of
// them stands still for a time that is log-uniform: short ones let one request of another goroutine
// come in between, long ones a whole structure change. Besides, a few stops come after a number of
// points, wherever that is (the change points of PCT: Burckhardt, Kothari, Musuvathi, Nagarakatte,
// ASPLOS 2010).
//
// One seed in eight stops nobody.
type points struct {
	world  *World
	random *rand.Rand
	sites  []schedule.Site
	armed  []uint32
	rules  map[uint32]*rule
	most   float64 // length of the longest stop, as log2 of nanoseconds

	changes int // change points that are left
	stops   map[uint32]int
	trace   bool
}

// rule is what happens at an armed site.
type rule struct {
	oneIn int // visits that stop
	left  int // stops
}

// weights say how much likelier sites of a kind are armed than others.
var weights = [...]float64{schedule.Other: 1, schedule.Lock: 4, schedule.Access: 8}

const (
	shortestStop = 100 * time.Nanosecond

	// A goroutine stands still for at most a third of the time, so that what is done in time by a
	// goroutine that is only slow is done in time.
	stopWindow = 3
)

// Environment, for a closer look at a failure.
const (
	traceVariable = "DMINDEX_SIM_STOPS" // 1 = each stop is printed
	// a regular expression: each seed arms the sites whose names match, and no others
	sitesVariable = "DMINDEX_SIM_SITES"
)

// newPoints draws what a seed does; nil if the program has no points.
func newPoints(w *World) *points {
	sites := w.o.Sites
	if sites == nil {
		sites = schedule.Sites()
	}
	if len(sites) == 0 {
		return nil
	}
	p := &points{world: w, random: rand.New(rand.NewPCG(w.o.Seed, streamPoints)), sites: sites, rules: map[uint32]*rule{}, stops: map[uint32]int{}}
	p.trace = os.Getenv(traceVariable) == "1"
	r := p.random
	only := os.Getenv(sitesVariable)
	if calm := r.IntN(8) == 0; calm && only == "" || w.o.Ordered {
		return p
	}
	salt := r.Uint64()
	near := p.pickFiles(r)
	var wanted *regexp.Regexp
	if only != "" {
		wanted = regexp.MustCompile(only)
	}
	total := 0.0
	for i := range sites {
		total += weights[sites[i].Kind]
	}
	// From two sites, where every stop is one of theirs, to a few hundred, among which are more of
	// those that matter.
	share := math.Exp2(1+7*r.Float64()) / total
	for i := range sites {
		s := &sites[i]
		h := mix(s.Hash ^ salt)
		arm := float64(h>>11)/(1<<53) < share*weights[s.Kind]
		switch {
		case wanted != nil:
			arm = wanted.MatchString(s.Name)
		case near != nil:
			arm = near[s.File()] && h&1 == 0
		}
		if arm {
			p.armed = append(p.armed, uint32(i))
			h = mix(h)
			p.rules[uint32(i)] = &rule{oneIn: 1 << (h % 8 * (h >> 3 % 2)), left: 1 << (h >> 8 % 10)}
		}
	}
	p.most = math.Log2(float64(w.o.LongestStop)) - float64(r.IntN(3))*2
	p.changes = r.IntN(4)
	return p
}

// pickFiles is nil for half of the seeds. For the others it is one to three files: sites that race
// are often neighbours, and a goroutine is stopped in each.
func (p *points) pickFiles(r *rand.Rand) map[string]bool {
	if r.IntN(2) == 0 {
		return nil
	}
	var files []string
	weight := map[string]float64{}
	for i := range p.sites {
		f := p.sites[i].File()
		if weight[f] == 0 {
			files = append(files, f)
		}
		weight[f] += weights[p.sites[i].Kind]
	}
	total := 0.0
	for _, f := range files {
		weight[f] = math.Sqrt(weight[f])
		total += weight[f]
	}
	near := map[string]bool{}
	for range 1 + r.IntN(3) {
		at := total * r.Float64()
		for _, f := range files {
			if at -= weight[f]; at < 0 {
				near[f] = true
				break
			}
		}
	}
	return near
}

func mix(h uint64) uint64 {
	h = (h ^ h>>32) * 0xD6E8FEB86659FD93
	h = (h ^ h>>32) * 0xD6E8FEB86659FD93
	return h ^ h>>32
}

// begin arms the points, until end.
func (p *points) begin() {
	if p != nil {
		schedule.Use(p.armed, p.change(), p.reached)
	}
}

func (p *points) end() {
	if p != nil {
		schedule.Stop(p.armed)
	}
}

// change draws how far away the next change point is.
func (p *points) change() uint64 {
	if p.changes == 0 {
		return 0
	}
	p.changes--
	return uint64(math.Exp2(20 * p.random.Float64()))
}

// reached is called at an armed point, or at a change point.
func (p *points) reached(site uint32, change bool) {
	r := p.rules[site]
	if change {
		schedule.Change(p.change())
		r = nil
	}
	w := p.world
	t := w.current
	if t == nil || t.unwinding || w.ended {
		return
	}
	if r != nil {
		if r.left == 0 || r.oneIn > 1 && p.random.IntN(r.oneIn) != 0 {
			return
		}
		r.left--
	}
	least := math.Log2(float64(shortestStop))
	d := time.Duration(math.Exp2(least + p.random.Float64()*max(0, p.most-least)))
	if w.now >= t.window {
		t.window, t.stopped = w.now+stopWindow*w.o.LongestStop, 0
	}
	if t.stopped+d > w.o.LongestStop {
		return
	}
	t.stopped += d
	p.stops[site]++
	if p.trace {
		fmt.Fprintf(os.Stderr, "%v: %v stops for %v at %s\n", w.now, t, d, p.sites[site].Name)
	}
	t.mayRun()
	t.pass(w.now+d, "its turn at a schedule point")
}

// String says how often goroutines were stopped, as the end of a sentence.
func (p *points) String() string {
	if p == nil || len(p.stops) == 0 {
		return ""
	}
	all := 0
	for _, n := range p.stops {
		all += n
	}
	return fmt.Sprintf(", %d stops at %d schedule points (%s=1 shows them)", all, len(p.stops), traceVariable)
}

// Replay is the command that runs one seed of a design of hack/sim in a build like this one.
func Replay(design string) string {
	command := strings.TrimSpace("hack/sim 1 " + design)
	if len(schedule.Sites()) == 0 {
		return "DMINDEX_SIM_POINTS=0 " + command
	}
	return command
}
