package indexsim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// Limits is a run in which operations end in the middle. Their limits are random, down to less than
// a round trip takes, queue pairs are late, lists have no answer, and memory may be short. Sessions
// go on after every error that allows it, and what a change leaves undone is judged at each answer
// (fate). Each session changes keys of its own, which lie between those of the others: so they meet
// in leaves, and each knows what its keys have.
type Limits struct {
	Design index.Design
	Seed   uint64
	Plan   *sim.Plan // in the place of the seed's own; nil = that
}

// LimitsReport is what became of such a run.
type LimitsReport struct {
	Err           error
	Plan          *sim.Plan
	Events        uint64
	Ops           int
	Late, Unknown int // operations that their limit ended, and those whose outcome is unknown
	Refused       int // for want of memory
	Dead, GivenUp int // sessions that died, and clients that were given up
}

// limits is a run under way.
type limits struct {
	Limits
	rep      LimitsReport
	options  index.Options
	clients  int
	sessions int // of each
	ops      int // of each
	keys     int // of each
	lease    time.Duration
	waves    bool          // for a while most operations write, then most delete
	switches bool          // each client that opens draws its switches
	late     int           // see unsteady
	most     time.Duration // likewise
	fail     int           // likewise
	least    time.Duration // limit of an operation
	// nothing of what happens ends a session, so no memory is lost
	gentle bool
	words  bool // values are of 8 bytes at most, and most of 8
	rand   *rand.Rand
	c      *poolsim.Cluster
	fates  [][]fate // by worker and key
}

// Do does the run.
func (run Limits) Do() LimitsReport {
	w := simenv.New(simenv.Options{Seed: run.Seed, Preempt: 6, MaxEvents: 30_000_000})
	x := &limits{Limits: run, rand: rand.New(rand.NewPCG(run.Seed, 90))}
	o := x.draw(w)
	var err error
	if x.c, err = poolsim.New(w, o); err != nil {
		x.rep.Err = err
		return x.rep
	}
	x.rep.Err = w.Run(func(p *simenv.Process) {
		if err := x.body(p); err != nil {
			w.Fail(err)
		}
	})
	x.rep.Plan, x.rep.Events = o.Fabric.Plan, w.Events()
	return x.rep
}

// draw draws the run.
func (x *limits) draw(w *simenv.World) poolsim.Options {
	r := x.rand
	x.clients, x.sessions, x.ops, x.keys = 1+r.IntN(2), 1+r.IntN(3), 60+r.IntN(200), []int{3, 12, 40}[r.IntN(3)]
	if !x.Design.SharesAll {
		x.clients = 1
	}
	if r.IntN(2) == 0 {
		x.options = index.Options{Uint64: true, MaxValueBytes: 24, NodeBytes: 256 << r.IntN(2)}
	} else {
		x.options = index.Options{MaxKeyBytes: 16, MaxValueBytes: 24, NodeBytes: []int{0, 512, 640}[r.IntN(3)]}
	}
	if r.IntN(3) == 0 {
		x.options.InlineBytes = 8
	}
	if x.words = x.Design.Name == "dolphin" && rand.New(rand.NewPCG(x.Seed, 89)).IntN(2) == 0; x.words {
		x.options.MaxValueBytes, x.options.InlineBytes = 8, 0
	}
	x.options.CacheBytes = []int{4 << 10, 12 << 10, 64 << 10, 1 << 20}[r.IntN(4)]
	x.options.Neighbourhood = neighbourhoodOf(x.Design, x.Seed)
	x.waves, x.switches = r.IntN(2) == 0, r.IntN(2) == 0
	for range x.clients * x.sessions {
		all := make([]fate, x.keys)
		for n := range all {
			all[n].now = []state{absent}
		}
		x.fates = append(x.fates, all)
	}
	plan := sim.NewPlan(w.Faults(), sim.Menu{})
	plan.Delay, plan.Gap = min(plan.Delay, 1000), min(plan.Gap, 1000)
	x.late, x.most, x.least = 2<<r.IntN(6), 4*time.Millisecond, 10*time.Microsecond
	if x.gentle = r.IntN(3) == 0; x.gentle {
		plan.Delay, plan.Gap, plan.Stall, x.least = 100, 100, 0, 100*time.Microsecond
	} else {
		if r.IntN(2) == 0 { // lists are in time, unless a queue pair is late
			plan.Delay, plan.Gap, plan.Stall = 100, 100, 0
		}
		x.lease = []time.Duration{10, 30, 100}[r.IntN(3)] * time.Millisecond
		x.fail = []int{0, 50, 300}[r.IntN(3)]
	}
	if x.Plan != nil {
		plan = x.Plan
	}
	o := poolsim.Options{
		Servers: 1 + r.IntN(2), Chunks: 60, ChunkBytes: 32 << 10, Locks: 64, Lease: x.lease, Executor: index.Executor(),
		RenewEvery: []time.Duration{20, 100, 1000}[r.IntN(3)] * time.Microsecond, Fabric: sim.Options{Plan: plan},
	}
	if x.Design.SharesAll && r.IntN(3) == 0 { // a log takes more than there is then
		o.Chunks, o.ChunkBytes = 2+r.IntN(8), 8<<10
	}
	return o
}

// body is what happens in the world.
func (x *limits) body(p *simenv.Process) error {
	steady := x.device(p)
	steady.over = true
	first := &limitsClient{x: x, p: p, d: steady}
	if x.Design.SharesAll { // else the only client makes the index
		if err := first.open(); err != nil {
			return err
		}
	}
	g := env.NewWaitGroup(p)
	all := make([]*limitsClient, x.clients)
	for i := range all {
		proc, done := p.World().NewProcess(fmt.Sprint("client-", i)), p.NewEvent()
		c := &limitsClient{x: x, p: proc, d: x.device(proc), mu: proc.NewMutex()}
		all[i] = c
		proc.Go("main", func() {
			defer done.Set()
			if err := c.work(i * x.sessions); err != nil {
				p.World().Fail(fmt.Errorf("client %d: %w", i, err))
			}
		})
		g.Go(fmt.Sprint("wait for client ", i), func() { done.Wait(env.Forever) })
	}
	g.Wait(env.Forever)
	for _, c := range all {
		c.d.over = true // it goes on to reclaim memory
	}
	last := first
	if !x.Design.SharesAll {
		last = all[0]
	}
	if !x.gentle || !x.Design.SharesAll {
		p.Sleep(2 * x.lease) // whoever was given up is fenced by then
		last = &limitsClient{x: x, p: p, d: steady, epoch: last.epoch, at: last.at}
		if err := last.open(); err != nil {
			return err
		}
	}
	return x.final(last, append(all, first))
}

// device makes the device of a client.
func (x *limits) device(p *simenv.Process) *unsteady {
	return &unsteady{Device: x.c.Fabric.Device(p), p: p, rand: rand.New(rand.NewPCG(x.Seed, x.rand.Uint64())), late: x.late, most: x.most, fail: x.fail}
}

// final looks everything up, by point and by scan, and checks the structure.
func (x *limits) final(last *limitsClient, all []*limitsClient) error {
	s, err := last.at.index.Session()
	if err != nil {
		return err
	}
	s.SetLimit(longLimit)
	for id, fates := range x.fates {
		w := limitsWorker{x: x, c: last, s: s, id: id, fates: fates, rand: x.rand}
		for n := range fates {
			if err := w.lookup(n); err != nil {
				return fmt.Errorf("at the end: %w", err)
			}
		}
		for _, reverse := range []bool{false, true} {
			if err := w.scan("", 1<<20, reverse); err != nil {
				return fmt.Errorf("at the end: %w", err)
			}
		}
	}
	if err := s.Close(); err != nil {
		return err
	}
	checker, ok := last.at.index.(index.Checker)
	if !ok {
		return errors.New("the design has no checker")
	}
	for range 100 { // reclamation takes locks, too, and gives them back
		if err = locksFree(x.c, !x.gentle); err == nil {
			break
		}
		last.p.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	found, err := checker.Check()
	if err != nil {
		return fmt.Errorf("check of the structure: %w", err)
	}
	if !x.Design.SharesAll {
		return nil // its log is no part of what is found
	}
	h := &history{}
	for _, c := range append(all, last) {
		if c.at.pool != nil && c.at.pool.Alive() == nil && !slices.Contains(h.pools, c.at.pool) {
			h.pools = append(h.pools, c.at.pool)
		}
	}
	return h.account(x.c, checker, &found, !x.gentle, nil)
}
