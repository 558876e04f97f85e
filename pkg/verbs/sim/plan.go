package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// Plan is what the adversary of one run does. It is data: it prints as JSON, a run with the same
// seed and plan is the same run, and [Shrink] makes it smaller.
type Plan struct {
	Capabilities verbs.Capabilities // what the fabric offers; the adversary breaks what it does not
	// at up to how many moments the words of a READ or WRITE are served; 1 = none is torn
	Tear    int
	Reorder bool // of a list, whatever G1 leaves open
	// an atomic reads and writes at two moments; WRITEs of the same word in between are lost
	SplitAtomics bool
	// requests of a frozen process stand still too, as on shm; else its NIC goes on
	HoldFrozen bool
	Delay      time.Duration // mean of what is added to the way of a request
	Gap        time.Duration // mean time between two parts of a request
	Stall      int           // one of how many requests waits far longer; 0 = none
	StallFor   time.Duration // at most
	Faults     []Fault       `json:",omitempty"`
}

// Kind of a fault.
type Kind string

// The kinds of faults.
const (
	// the process dies; what it has under way may go on for a while and stops anywhere
	Crash  Kind = "crash"
	Freeze Kind = "freeze" // the process stands still for a time
	// the connection is lost; what is under way may go on for a while and stops anywhere
	Drop    Kind = "drop"
	Restart Kind = "restart" // the memory server's process dies and finds its content again
	// the memory server's process dies and its copy takes its place: see Mirror
	FailOver Kind = "fail-over"
	Lose     Kind = "lose"  // the memory server comes back without its content
	Drift    Kind = "drift" // the process's clock runs faster or slower from then on
	Jump     Kind = "jump"  // the process's clock jumps forward, as after a suspend
)

// Fault is one event of a plan. It happens right after a part of a request has taken effect: so
// between any two requests, and in the middle of a READ or WRITE.
type Fault struct {
	Kind Kind
	// whose parts are counted, and whom it meets; of Restart, FailOver and Lose the server of that
	// part
	Process string
	Part    int // after how many parts of that process
	// of Freeze and Jump; of FailOver, how late clients hear of it at most
	For time.Duration `json:",omitempty"`
	PPM int64         `json:",omitempty"` // of Drift
	At  Moment        `json:",omitempty"` // of FailOver: what it waits for behind that part
}

// Moment is when a fail-over happens. Most of what a copy may lack matters only within a moment, so
// a fail-over waits for one: for the process whose parts are counted.
type Moment string

// Moments of fail-overs. The empty one is at once.
const (
	// a list that changed what is recorded is through, and its answer is on its way: if it gave up
	// a lock, others may have it
	Through Moment = "through"
	// a list was just answered that READ or compared what another one changed, which has no answer
	// yet; it has itself changed nothing since that its answer waits for
	Seen Moment = "seen"
	// a list was just answered that changed what is recorded
	Answered Moment = "answered"
	// the same, by atomics
	Swapped Moment = "swapped"
)

var moments = []Moment{"", Through, Seen, Answered, Swapped}

// patience is after how many parts of the process a fail-over waits no longer: not all processes
// have every moment.
const patience = 400

// String is the plan as JSON in one line.
func (p *Plan) String() string {
	b, err := json.Marshal(p)
	if err != nil {
		return fmt.Sprintf("unprintable plan: %v", err)
	}
	return string(b)
}

// ParsePlan reads what String wrote.
func ParsePlan(s string) (*Plan, error) {
	p := new(Plan)
	if err := json.Unmarshal([]byte(s), p); err != nil {
		return nil, fmt.Errorf("read a fault plan: %w", err)
	}
	return p, nil
}

// failsOver reports whether the plan has a fail-over.
func (p *Plan) failsOver() bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == FailOver })
}

// OrFailOvers is a menu of faults in which memory servers die: kinds in half of the seeds, and in
// the others fail-overs in the place of most of their crashes, and of their restarts. In a third of
// these seeds restarts stay beside fail-overs, so a copy that took over may restart alone. Where
// flaws are put in, there is nothing but fail-overs in any seed.
func OrFailOvers(seed uint64, flaws Flaws, kinds ...Kind) []Kind {
	if flaws != (Flaws{}) {
		return []Kind{FailOver}
	}
	if !Mirrors(seed) {
		return kinds
	}
	both := rand.New(rand.NewPCG(seed, 96)).IntN(3) == 0
	kinds = slices.Clone(kinds)
	for i, k := range kinds {
		switch {
		case k == Restart && both:
			kinds = append(kinds, FailOver)
		case k == Restart, k == Crash && i > 0:
			kinds[i] = FailOver
		}
	}
	return kinds
}

// Mirrors reports whether memory servers have copies in a seed: in half of them.
func Mirrors(seed uint64) bool { return rand.New(rand.NewPCG(seed, 95)).IntN(2) == 0 }

// Menu says what faults a plan may have.
type Menu struct {
	Kinds     []Kind
	Processes []string      // whom they may meet
	Parts     int           // they come before so many parts of a process
	Most      int           // at most so many faults
	Longest   time.Duration // of Freeze, Jump and FailOver; 0 = 10 s
	Drift     int64         // at most, either way, in parts of a million; 0 = 200,000
}

// NewPlan makes a plan of random choices.
func NewPlan(r *rand.Rand, m Menu) *Plan {
	coin := func(n int) bool { return r.IntN(n) == 0 }
	p := &Plan{
		Capabilities: verbs.Capabilities{
			MaskedAtomics: coin(2), OrderedReads: coin(4), CacheLineAtomic: coin(4), OrderedWrite: coin(4), ReleaseByWrite: coin(4),
			WholeWrite: []int{8, 8, 64, 1024, mtu}[r.IntN(5)], Calls: true,
		},
		Tear:         []int{1, 2, 3, 5, 8}[r.IntN(5)],
		Reorder:      !coin(4),
		SplitAtomics: coin(2),
		HoldFrozen:   coin(2),
		Delay:        []time.Duration{100, 1000, 1000, 10_000}[r.IntN(4)],
		Gap:          []time.Duration{100, 1000, 5000, 20_000}[r.IntN(4)],
	}
	p.Capabilities.WholeAlways = !p.Capabilities.OrderedReads // as ibv; with them as tcp
	if !coin(4) {
		p.Stall, p.StallFor = []int{4, 10, 50, 300}[r.IntN(4)], 20*time.Microsecond<<r.IntN(7)
	}
	if len(m.Kinds) == 0 || len(m.Processes) == 0 || m.Parts == 0 {
		return p
	}
	for range r.IntN(m.Most + 1) {
		f := Fault{
			Kind: m.Kinds[r.IntN(len(m.Kinds))], Process: m.Processes[r.IntN(len(m.Processes))], Part: 1 + r.IntN(m.Parts),
		}
		switch f.Kind {
		case Freeze, Jump, FailOver:
			// From a moment to far beyond any lease, with as many short as long ones.
			longest := m.Longest
			if longest == 0 {
				longest = 10 * time.Second
			}
			f.For = min(longest, time.Duration(1000)<<r.IntN(24))
			if f.Kind == FailOver {
				f.At = moments[r.IntN(len(moments))]
			}
		case Drift:
			most := m.Drift
			if most == 0 {
				most = 200_000
			}
			f.PPM = r.Int64N(2*most+1) - most
		}
		p.Faults = append(p.Faults, f)
	}
	return p
}

// Shrink makes a plan with which fails is true as small as it can, by leaving out what is not
// needed. It calls fails often.
func Shrink(p *Plan, fails func(*Plan) bool) *Plan {
	best := *p
	try := func(change func(*Plan)) bool {
		next := best
		next.Faults = append([]Fault(nil), best.Faults...)
		change(&next)
		if next.String() == best.String() || !fails(&next) {
			return false
		}
		best = next
		return true
	}
	for smaller := true; smaller; {
		smaller = false
		for i := len(best.Faults) - 1; i >= 0; i-- {
			smaller = try(func(n *Plan) { n.Faults = append(n.Faults[:i], n.Faults[i+1:]...) }) || smaller
		}
		for _, change := range []func(*Plan){
			func(n *Plan) { n.Tear = 1 },
			func(n *Plan) { n.Tear = max(1, n.Tear-1) },
			func(n *Plan) { n.Reorder = false },
			func(n *Plan) { n.SplitAtomics = false },
			func(n *Plan) { n.HoldFrozen = false },
			func(n *Plan) { n.Stall, n.StallFor = 0, 0 },
			func(n *Plan) { n.Delay = min(n.Delay, 100) },
			func(n *Plan) { n.Gap = min(n.Gap, 100) },
			func(n *Plan) { n.Capabilities.Calls = false },
			func(n *Plan) { n.Capabilities.WholeWrite = mtu },
			func(n *Plan) { n.Capabilities.WholeAlways = true },
			func(n *Plan) { n.Capabilities.OrderedReads = true },
			func(n *Plan) { n.Capabilities.OrderedWrite = true },
			func(n *Plan) { n.Capabilities.CacheLineAtomic = true },
			func(n *Plan) { n.Capabilities.MaskedAtomics = true },
			func(n *Plan) { n.Capabilities.ReleaseByWrite = true },
		} {
			smaller = try(change) || smaller
		}
		for i := range best.Faults {
			smaller = try(func(n *Plan) { n.Faults[i].For /= 2 }) || smaller
			smaller = try(func(n *Plan) { n.Faults[i].At = "" }) || smaller
		}
	}
	return &best
}
