package dex_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestSeeds runs clients under the adversary that serve ranges, give them to each other, and die
// anywhere: in operations, in structure changes, in the middle of giving, taking and replaying. Who
// inherits a range finds every acknowledged change, and of the others each as a whole or not at
// all.
func TestSeeds(t *testing.T) {
	seeds := simtest.Read(t, "dex", "pkg/index/dex", 150)
	var sum ownersCounts
	began := time.Now()
	for seed := range seeds.OneByOne() {
		o := &owners{t: t, r: rand.New(rand.NewPCG(seed, 7)), seed: seed, used: true}
		if err := o.run(); err != nil {
			t.Fatalf("seed %d: %v\nplan: %v\n%s", seed, err, o.plan, seeds.Replay(seed))
		}
		sum.deaths += o.counts.deaths
		sum.restarts += o.restarts()
		sum.gives += o.counts.gives
		sum.beside += o.counts.beside
		sum.takes += o.counts.takes
		sum.replays += o.counts.replays
		sum.ops += o.counts.ops
		sum.calls += o.counts.calls
		sum.blocks += o.counts.blocks
		sum.reclaimed += o.counts.reclaimed
		sum.lost += o.counts.lost
		sum.early.add(o.early())
		sum.resized += o.resized()
		sum.grown.add(o.grown())
	}
	if sum.calls == 0 && seeds.Count > 10 {
		t.Error("the memory servers were never asked for a key")
	}
	if seeds.Count > 10 {
		sum.early.check(t)
		checkResized(t, sum.resized)
		if sum.restarts == 0 {
			t.Error("no memory server was restarted")
		}
		sum.grown.check(t)
	}
	t.Logf("%d seeds, %.0f a second: %+v", seeds.Count, float64(seeds.Count)/time.Since(began).Seconds(), sum)
}

// blocks is how many the indexes had in the end, reclaimed what came back of memory to clients that
// lived then, lost what nobody has any more, resized how often the number of buckets changed.
type ownersCounts struct {
	ops, deaths, restarts, beside, gives, takes, replays, calls, blocks, reclaimed, lost int
	early                                                                                earlyCounts
	resized                                                                              int
	grown                                                                                grownCounts
}

// earlyCounts are records that were appended beside the READ of their leaf: whose change was made,
// or refused; and those that were cancelled, refused or not.
type earlyCounts struct{ made, refused, cancelled int }

func (c *earlyCounts) add(d earlyCounts) {
	c.made += d.made
	c.refused += d.refused
	c.cancelled += d.cancelled
}

// check fails if not all of it happened.
func (c *earlyCounts) check(t *testing.T) {
	t.Helper()
	if c.made == 0 || c.refused == 0 || c.cancelled <= c.refused {
		t.Errorf("records beside READs: %+v: something never happened", *c)
	}
}

// early is what all clients did.
func (o *owners) early() (sum earlyCounts) {
	for _, c := range o.all {
		if c.x != nil {
			made, refused, cancelled := dex.Beside(c.x)
			sum.add(earlyCounts{made, refused, cancelled})
		}
	}
	return sum
}

// resized is how often the number of buckets of entries changed.
func (o *owners) resized() (sum int) {
	for _, c := range o.all {
		if c.x != nil {
			sum += dex.Resized(c.x)
		}
	}
	return sum
}

// checkResized fails if it never changed.
func checkResized(t *testing.T, resized int) {
	t.Helper()
	if resized == 0 {
		t.Error("the share of entries never changed")
	}
}

var executor = index.Executor()

// owners is one run.
type owners struct {
	t      *testing.T
	r      *rand.Rand
	seed   uint64
	used   bool      // clients get memory that was used before
	flaws  sim.Flaws // of memory servers that have copies
	plan   *sim.Plan
	w      *simenv.World
	c      *poolsim.Cluster
	main   *simenv.Process
	opts   index.Options
	made   int
	epoch  uint64
	living []*owner
	all    []*owner // that ever were
	ranges []*owned
	model  map[string]*known
	counts ownersCounts
	found  index.Structure

	sessions uint64 // of each client, each with keys of its own
}

// owner is a client.
type owner struct {
	p      *simenv.Process
	client uint32
	pool   *pool.Pool
	x      index.Partitioned
	log    []byte
	gone   bool // it died, and is fenced or about to be

	restarts int // of memory servers when it was opened
}

// owned is a range: the keys from low up to high.
type owned struct {
	start, end []byte
	low, high  uint64
	by         *owner // nil = nobody yet
	moving     bool   // beside operations on other ranges: nobody but its mover uses its keys
	epoch      uint64
	inherits   []pool.Inherited
}

const (
	simKeys   = 240
	simLease  = 100 * time.Millisecond
	simRanges = 4
)

func simKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n<<32) }

func (o *owners) run() error {
	evicts := o.seed%5 < 2 // leaves of several shards depart at once
	if evicts {
		defer dex.DivideShards(dex.DivideShards(2, 8))
	}
	o.sessions = 2 + rand.New(rand.NewPCG(o.seed, 9)).Uint64N(3)
	o.model = map[string]*known{}
	for n := range uint64(simKeys) {
		o.model[string(simKey(n))] = &known{}
	}
	o.w = simenv.New(simenv.Options{Seed: o.seed, MaxEvents: 40_000_000, Preempt: 6})
	var names []string
	for i := range 12 {
		names = append(names, fmt.Sprint("client-", i+1))
	}
	o.plan = sim.NewPlan(o.r, sim.Menu{Kinds: sim.OrFailOvers(o.seed, o.flaws, sim.Crash, sim.Crash, sim.Restart), Longest: simLease, Processes: names, Parts: 3000, Most: 6})
	o.plan.Capabilities.DeviceMemory = 0
	o.opts = index.Options{Uint64: true, MaxValueBytes: 24, NodeBytes: 256, CacheBytes: 12 << 10}
	switch {
	case o.seed%3 == 1:
		o.opts.CacheBytes = 1 << 20
	case o.seed%2 == 0: // inner nodes have no room: memory servers look for keys
		o.opts.CacheBytes = 3 << 10
		o.opts.Switches = map[string]bool{"costAware": o.seed%4 == 0}
	}
	if evicts {
		o.opts.CacheBytes = []int{3, 5, 8}[o.seed/5%3] << 10
	}
	if o.seed%4 == 1 { // many entries and few frames
		defer dex.MostlyEntries()()
		o.opts.CacheBytes = []int{3, 5, 8}[o.seed/4%3] << 10
	}
	renew := time.Duration(0)
	// longer values lie in blocks, which come back soon
	if r := rand.New(rand.NewPCG(o.seed, 8)); r.IntN(2) == 0 {
		o.opts.InlineBytes = 1 + r.IntN(o.opts.MaxValueBytes-1)
		renew = time.Duration(20<<r.IntN(4)) * time.Microsecond
	}
	var err error
	if o.c, err = poolsim.New(o.w, poolsim.Options{Servers: 1 + int(o.seed%3), Executor: executor, Chunks: 200, ChunkBytes: 16 << 10 << (o.seed % 3), Locks: 64, Lease: simLease, RenewEvery: renew, Fabric: sim.Options{Plan: o.plan, Flaws: o.flaws}}); err != nil {
		return err
	}
	return o.w.Run(func(p *simenv.Process) {
		o.main = p
		if err := o.play(); err != nil {
			o.w.Fail(err)
		}
	})
}

func (o *owners) play() error {
	for i := range uint64(simRanges) {
		g := &owned{low: i * simKeys / simRanges, high: (i + 1) * simKeys / simRanges}
		g.start = simKey(g.low)
		if i+1 < simRanges {
			g.end = simKey(g.high)
		}
		o.ranges = append(o.ranges, g)
	}
	for range 5 {
		for len(o.living) < 2+o.r.IntN(2) {
			if !o.make() {
				continue
			}
		}
		for _, g := range o.ranges {
			if g.by == nil || o.r.IntN(3) == 0 {
				if err := o.moveTo(g, o.living[o.r.IntN(max(1, len(o.living)))]); err != nil {
					return err
				}
				if len(o.living) == 0 {
					break
				}
			}
		}
		if err := o.work(); err != nil {
			return err
		}
	}
	return o.last()
}

// work lets all clients serve their ranges for a while.
func (o *owners) work() error {
	g := env.NewWaitGroup(o.main)
	all := append([]*owner(nil), o.living...)
	for i, m := range o.movers() {
		seed := o.r.Uint64()
		g.Go("move", func() {
			if err := o.moveBeside(m, rand.New(rand.NewPCG(seed, uint64(i)))); err != nil {
				o.w.Fail(err)
			}
		})
	}
	lost := make([]bool, len(all))
	for i, c := range all {
		for k := range o.sessions {
			if c.p.Dead() {
				break
			}
			seed := o.r.Uint64()
			over := o.main.NewEvent()
			c.p.AtKill(over.Set) // as in owners.in
			c.p.Go("serve", func() {
				defer over.Set()
				if err := o.serve(c, rand.New(rand.NewPCG(seed, 1)), k); o.lostServer(c, err) {
					lost[i] = true
				} else if err != nil {
					o.w.Fail(err)
				}
			})
			g.Go("wait", func() { over.Wait(env.Forever) })
		}
	}
	g.Wait(env.Forever)
	for _, m := range o.ranges {
		m.moving = false
	}
	for i, c := range all {
		if lost[i] {
			c.p.Kill()
		}
		if c.p.Dead() {
			o.died(c)
		}
	}
	return nil
}

// serve does operations on the keys of c whose number is k modulo the sessions of each client.
func (o *owners) serve(c *owner, r *rand.Rand, k uint64) error {
	s, err := c.x.Session()
	if err != nil {
		return err
	}
	var mine []*owned
	for _, g := range o.ranges {
		if g.by == c && !g.moving {
			mine = append(mine, g)
		}
	}
	for n := 0; n < 240/int(o.sessions) && len(mine) > 0; n++ {
		g := mine[r.IntN(len(mine))]
		number := g.low + r.Uint64N(g.high-g.low)
		if o.atEdges() {
			number = o.nearEdge(g, r)
		}
		own, any := o.own(g, number, k)
		if !any { // a range of few keys
			continue
		}
		var err error
		if r.IntN(8) == 0 {
			err = o.prepare(s, g, r, k)
		}
		switch {
		case err != nil:
		case o.atEdges() && n/20%2 == 0:
			err = o.remove(s, simKey(own))
		case r.IntN(10) == 0: // the range behind may be on the move
			err = o.sweep(s, number, g.high, k)
		case r.IntN(8) == 0:
			err = o.batch(s, g, r, k)
		case r.IntN(8) == 0:
			err = o.deferred(s, g, r, k)
		case r.IntN(3) == 0 && number%o.sessions != k:
			err = o.peek(s, simKey(number))
		default:
			err = o.operate(s, simKey(own), r)
		}
		if err != nil {
			return err
		}
	}
	calls := s.Counters()
	o.counts.calls += int(calls.Requests[verbs.Call])
	return s.Close()
}

// own is a key of g near number whose number is k modulo the sessions of each client; false if
// there is none.
func (o *owners) own(g *owned, number, k uint64) (uint64, bool) {
	number = number - number%o.sessions + k
	switch {
	case number >= g.high && number >= g.low+o.sessions:
		number -= o.sessions
	case number < g.low:
		number += o.sessions
	}
	return number, g.low <= number && number < g.high
}
