package psherman_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/register"
	"github.com/dmindex/dmindex/pkg/index/psherman"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestSeeds runs clients under the adversary that serve ranges, each with several sessions on the
// same keys, while other ranges move between them; and that die anywhere: in operations, in
// structure changes, in the middle of giving and taking. The history of each key is to be
// linearizable.
func TestSeeds(t *testing.T) {
	seeds := simtest.Read(t, "p-sherman", "pkg/index/psherman", 60)
	var sum counts
	for seed := range seeds.OneByOne() {
		f := &fleet{r: rand.New(rand.NewPCG(seed, 31)), seed: seed}
		if err := f.run(); err != nil {
			t.Fatalf("seed %d: %v\nplan: %v\n%s", seed, err, f.plan, seeds.Replay(seed))
		}
		sum.add(&f.counts)
	}
	t.Logf("%d seeds: %+v", seeds.Count, sum)
	if seeds.Count > 10 && (sum.deaths == 0 || sum.beside == 0 || sum.combined == 0 || sum.merged == 0) {
		t.Errorf("%+v: something never happened", sum)
	}
}

// counts are operations, clients that died, moves, those beside operations, changes that a session
// carried out for another one, and merges.
type counts struct {
	ops, deaths, moves, beside int
	combined, merged           uint64
}

func (c *counts) add(d *counts) {
	c.ops += d.ops
	c.deaths += d.deaths
	c.moves += d.moves
	c.beside += d.beside
	c.combined += d.combined
	c.merged += d.merged
}

// fleet is one run.
type fleet struct {
	r      *rand.Rand
	seed   uint64
	plan   *sim.Plan
	w      *simenv.World
	c      *poolsim.Cluster
	main   *simenv.Process
	opts   index.Options
	made   int
	epoch  uint64
	living []*client
	all    []*client          // that ever were
	ranges [simRanges]*client // nil = nobody's
	ops    []porcupine.Operation
	clock  int64
	next   int // number of the next value
	counts counts
}

// client is one of them.
type client struct {
	p    *simenv.Process
	id   uint32
	x    index.Partitioned
	gone bool
}

const (
	simRanges   = 3
	simKeys     = 120
	simHot      = 6 // keys that most operations are on
	simRounds   = 4
	simSessions = 3
	simOps      = 40 // of a session in a round
	simLease    = 100 * time.Millisecond
)

func (f *fleet) run() error {
	f.w = simenv.New(simenv.Options{Seed: f.seed, MaxEvents: 40_000_000, Preempt: 6})
	var names []string
	for i := range 2 * simRounds {
		names = append(names, fmt.Sprint("client-", i+1))
	}
	f.plan = sim.NewPlan(f.r, sim.Menu{Kinds: []sim.Kind{sim.Crash, sim.Freeze}, Longest: 2 * simLease, Processes: names, Parts: 600, Most: 8})
	f.plan.Capabilities.DeviceMemory = 0
	f.opts = index.Options{Uint64: true, MaxValueBytes: 40, NodeBytes: 256, CacheBytes: 16 << 10}
	if f.seed%2 == 0 {
		f.opts.InlineBytes = 4 + f.r.IntN(16)
	}
	var err error
	if f.c, err = poolsim.New(f.w, poolsim.Options{Servers: 1 + int(f.seed%3), Chunks: 200, ChunkBytes: 16 << 10, Locks: 64, Lease: simLease, Fabric: sim.Options{Plan: f.plan}}); err != nil {
		return err
	}
	if err := f.w.Run(func(p *simenv.Process) {
		f.main = p
		if err := f.play(); err != nil {
			f.w.Fail(err)
		}
	}); err != nil {
		return err
	}
	for _, c := range f.all {
		if c.x != nil {
			stats := c.x.Stats()
			f.counts.combined, f.counts.merged = f.counts.combined+stats.Combined, f.counts.merged+stats.Merges
		}
	}
	result, guilty := register.Check(f.ops)
	if result == porcupine.Ok {
		return nil
	}
	text := ""
	for _, o := range guilty {
		text += fmt.Sprintf("  session %d, %d to %d: %s\n", o.ClientId, o.Call, o.Return, register.Model.DescribeOperation(o.Input, o.Output))
	}
	return fmt.Errorf("%d operations on a key are not linearizable (%v):\n%s", len(guilty), result, text)
}

func (f *fleet) play() error {
	for range simRounds {
		for n := range f.ranges {
			if f.ranges[n] == nil || f.r.IntN(3) == 0 {
				f.move(n)
			}
		}
		f.work()
	}
	return f.last()
}

// last lets one client look all keys up, and check the tree.
func (f *fleet) last() error {
	for {
		for n := range f.ranges {
			f.moveTo(n, f.some())
		}
		for _, c := range f.living {
			f.in(c, "look", func() error {
				s := &worker{f: f, id: -1, r: f.r}
				var err error
				if s.s, err = c.x.Session(); err != nil {
					return err
				}
				for n := range uint64(simKeys) {
					if f.ranges[n*simRanges/simKeys] == c {
						if err := s.one(register.Input{Verb: register.Lookup, Key: key(n)}); err != nil {
							return err
						}
					}
				}
				if err := s.s.Close(); err != nil {
					return err
				}
				_, err = c.x.(index.Checker).Check()
				return err
			})
		}
		whole := true
		for _, c := range f.ranges {
			whole = whole && c != nil
		}
		if whole {
			return nil
		}
	}
}

// work lets all clients serve their ranges for a while, but for one that moves meanwhile.
func (f *fleet) work() {
	g, moving := env.NewWaitGroup(f.main), f.r.IntN(2*simRanges)
	for _, c := range append([]*client(nil), f.living...) {
		for id := range simSessions {
			r := rand.New(rand.NewPCG(f.r.Uint64(), 1))
			g.Go("serve", func() {
				f.in(c, "serve", func() error {
					s := &worker{f: f, id: id, r: r}
					return s.serve(c, moving)
				})
			})
		}
	}
	if moving < simRanges {
		g.Go("move", func() {
			f.counts.beside++
			if c := f.ranges[moving]; c != nil && f.r.IntN(4) == 0 {
				f.fence(c)
			}
			f.move(moving)
		})
	}
	g.Wait(env.Forever)
}

// some is a client that lives.
func (f *fleet) some() *client {
	for len(f.living) < 2 {
		f.made++
		c := &client{p: f.w.NewProcess(fmt.Sprint("client-", f.made))}
		f.living, f.all = append(f.living, c), append(f.all, c)
		f.in(c, "open", func() error {
			p, err := f.c.Open(c.p)
			if err != nil {
				return err
			}
			c.id = p.Client()
			x, err := psherman.Open(p, f.opts)
			if err == nil {
				c.x = x.(index.Partitioned)
			}
			return err
		})
	}
	return f.living[f.r.IntN(len(f.living))]
}

// in runs do in the process of a client and waits. A client that dies is fenced, and so is one that
// fails after it was frozen for longer than its lease: it has lost that.
func (f *fleet) in(c *client, what string, do func() error) (ok bool) {
	var err error
	if !c.p.Dead() {
		over := f.main.NewEvent()
		c.p.AtKill(over.Set) // it may die before do begins
		c.p.Go(what, func() {
			defer over.Set()
			err = do()
		})
		over.Wait(env.Forever)
	}
	if err != nil && !fenced(err) {
		f.w.Fail(fmt.Errorf("%s: %w", what, err))
	}
	if err == nil && !c.p.Dead() {
		return true
	}
	f.died(c)
	return false
}

// died is called when a client was seen to be dead.
func (f *fleet) died(c *client) {
	c.p.Kill()
	f.fence(c)
}

// fence fences a client, and makes its ranges nobody's when its lease is over: until then a client
// that lives may answer, and its sessions go on.
func (f *fleet) fence(c *client) {
	if c.gone {
		return
	}
	c.gone = true
	f.counts.deaths++
	for i, l := range f.living {
		if l == c {
			f.living = append(f.living[:i], f.living[i+1:]...)
			break
		}
	}
	if c.id != 0 {
		for id := range f.c.Options.Servers {
			for f.c.Control(f.main).Fence(uint16(id+1), []uint32{c.id}, time.Second) != nil {
				f.main.Yield()
			}
		}
	}
	if !c.p.Dead() {
		f.main.Sleep(simLease)
	}
	for n := range f.ranges {
		if f.ranges[n] == c {
			f.ranges[n] = nil
		}
	}
}

func (f *fleet) move(n int) { f.moveTo(n, f.some()) }

// moveTo gives a range to a client, or to another one if that dies.
func (f *fleet) moveTo(n int, to *client) {
	start, end := []byte(key(uint64(n)*simKeys/simRanges)), []byte(nil)
	if n+1 < simRanges {
		end = []byte(key(uint64(n+1) * simKeys / simRanges))
	}
	if from := f.ranges[n]; from == to {
		return
	} else if from != nil && f.in(from, "give", func() error { _, err := from.x.Give(start, end); return err }) {
		f.ranges[n] = nil
	}
	for f.counts.moves++; f.ranges[n] == nil; to = f.some() {
		f.epoch++
		h := pool.Holding{Start: start, End: end, Epoch: f.epoch}
		if to.x != nil && f.in(to, "take", func() error { return to.x.Take(h) }) {
			f.ranges[n] = to
		}
	}
}
