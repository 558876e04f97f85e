package dex_test

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
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/index/internal/register"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestRegisters lets the sessions of one client use the same keys: with all operations, in batches,
// and deferred, while the client may die, and the next one takes the range. TestSeeds gives each
// key one session that changes it, so nothing there comes between the two halves of a modification.
// Here the history of each key is to be linearizable. What was deferred counts as answered when all
// of it is durable; what never is may have happened or not, and nobody else may have seen it.
func TestRegisters(t *testing.T) {
	seeds := simtest.Read(t, "dex-registers", "pkg/index/dex", 60)
	var sum registersCounts
	for seed := range seeds.OneByOne() {
		g := &registers{owners: &owners{t: t, r: rand.New(rand.NewPCG(seed, 21)), seed: seed, used: true}}
		if err := g.run(); err != nil {
			t.Fatalf("seed %d: %v\nplan: %v\n%s", seed, err, g.plan, seeds.Replay(seed))
		}
		sum.ops += g.sum.ops
		sum.deferred += g.sum.deferred
		sum.told += g.sum.told
		sum.toldAgain += g.sum.toldAgain
		sum.deaths += g.counts.deaths
		sum.restarts += g.restarts()
		sum.early.add(g.early())
		sum.resized += g.resized()
		sum.grown.add(g.grown())
	}
	t.Logf("%d seeds: %+v", seeds.Count, sum)
	if seeds.Count > 10 && (sum.deferred == 0 || sum.toldAgain == 0 || sum.deaths == 0 || sum.restarts == 0) {
		t.Errorf("%+v: something never happened", sum)
	}
	if seeds.Count > 10 {
		sum.early.check(t)
		checkResized(t, sum.resized)
		sum.grown.check(t)
	}
}

// TestFlawsAreFound: a memory server that answers a WRITE before its copy has it is found, by a
// seed that passes without the fault.
func TestFlawsAreFound(t *testing.T) {
	const from, within = 3, 60 // it is the first that finds it
	for seed := uint64(from); seed < from+within; seed++ {
		run := func(flaws sim.Flaws) error {
			return (&registers{owners: &owners{t: t, r: rand.New(rand.NewPCG(seed, 21)), seed: seed, used: true, flaws: flaws}}).run()
		}
		if err := run(sim.Flaws{Writes: true}); err != nil {
			t.Logf("seed %d: %.200v", seed, err)
			if err := run(sim.Flaws{Sound: true}); err != nil {
				t.Errorf("seed %d, without the fault: %v", seed, err)
			}
			return
		}
	}
	t.Errorf("not found by %d seeds", within)
}

// registersCounts are operations, those of them that were deferred, how often modifications were
// told of a pair, and how often once more, how many clients died, and how often a memory server's
// process.
type registersCounts struct {
	ops, deferred, told, toldAgain, deaths, restarts int
	early                                            earlyCounts
	resized                                          int
	grown                                            grownCounts
}

// registers is one run.
type registers struct {
	*owners
	ops   []porcupine.Operation
	clock int64
	next  int  // number of the next value
	few   bool // frames, and many entries: values are short and of one length, and most operations
	// are lookups and updates
	sum registersCounts
}

const (
	registerKeys     = 120
	registerHot      = 5 // keys that most operations are on
	registerSessions = 3
	registerRounds   = 3
	registerOps      = 60 // of a session in a round
)

func (g *registers) run() error {
	if g.seed%3 == 0 { // leaves of several shards depart at once
		defer dex.DivideShards(dex.DivideShards(2, 8))
	}
	g.model = map[string]*known{}
	g.w = simenv.New(simenv.Options{Seed: g.seed, MaxEvents: 40_000_000, Preempt: 6})
	var names []string
	for i := range 2 * registerRounds {
		names = append(names, fmt.Sprint("client-", i+1))
	}
	g.plan = sim.NewPlan(g.r, sim.Menu{Kinds: sim.OrFailOvers(g.seed, g.flaws, sim.Crash, sim.Crash, sim.Restart), Longest: simLease, Processes: names, Parts: 1500, Most: 5})
	g.plan.Capabilities.DeviceMemory = 0
	g.opts = index.Options{Uint64: true, MaxValueBytes: 40, NodeBytes: 256, CacheBytes: []int{3, 5, 8, 1 << 10}[g.seed/3%4] << 10}
	if g.seed%4 > 1 { // many entries and few frames
		defer dex.MostlyEntries()()
		g.opts.CacheBytes = []int{3, 4, 6}[g.seed/4%3] << 10
		g.few = true
	}
	if g.seed%2 == 1 { // misses are READs, so records are posted beside them
		g.opts.Switches = map[string]bool{"offloading": false}
	}
	renew := time.Duration(0)
	if g.r.IntN(4) > 0 { // longer values lie in blocks, which come back soon
		g.opts.InlineBytes = 4 + g.r.IntN(16)
		renew = time.Duration(20<<g.r.IntN(4)) * time.Microsecond
	}
	var err error
	if g.c, err = poolsim.New(g.w, poolsim.Options{Servers: 1 + int(g.seed%2), Executor: executor, Chunks: 400, ChunkBytes: 8 << 10 << (g.seed % 3), Locks: 64, Lease: simLease, RenewEvery: renew, Fabric: sim.Options{Plan: g.plan, Flaws: g.flaws}}); err != nil {
		return err
	}
	if err := g.w.Run(func(p *simenv.Process) {
		g.main = p
		if err := g.play(); err != nil {
			g.w.Fail(err)
		}
	}); err != nil {
		return err
	}
	return g.judge()
}

func (g *registers) play() error {
	all := &owned{low: 0, high: registerKeys, start: simKey(0)}
	g.ranges = []*owned{all}
	for range registerRounds {
		for len(g.living) < 2 {
			g.make()
		}
		if err := g.moveTo(all, g.living[g.r.IntN(2)]); err != nil {
			return err
		}
		c, group, lost := all.by, env.NewWaitGroup(g.main), false
		for i := range registerSessions {
			seed, over := g.r.Uint64(), g.main.NewEvent()
			c.p.AtKill(over.Set) // as in owners.in
			c.p.Go("serve", func() {
				defer over.Set()
				w := &registerSession{g: g, id: i, r: rand.New(rand.NewPCG(seed, 2))}
				if err := w.serve(c); g.lostServer(c, err) {
					lost = true
				} else if err != nil {
					g.w.Fail(err)
				}
			})
			group.Go("wait", func() { over.Wait(env.Forever) })
		}
		group.Wait(env.Forever)
		if lost {
			c.p.Kill()
		}
		if c.p.Dead() {
			g.died(c)
		}
	}
	return g.readAll(all)
}

// readAll lets some client that lives look all keys up.
func (g *registers) readAll(all *owned) error {
	for {
		for len(g.living) == 0 {
			g.make()
		}
		if err := g.moveTo(all, g.living[0]); err != nil {
			return err
		}
		c := all.by
		alive, err := g.in(c, "read all", func() error {
			w := &registerSession{g: g, r: g.r}
			var err error
			if w.s, err = c.x.Session(); err != nil {
				return err
			}
			for n := range uint64(registerKeys) {
				if err := w.one(register.Input{Verb: register.Lookup, Key: string(simKey(n))}); err != nil {
					return err
				}
			}
			if err := w.s.Close(); err != nil {
				return err
			}
			_, err = c.x.(index.Checker).Check()
			return err
		})
		if err != nil || alive {
			return err
		}
		g.died(c)
	}
}

func (g *registers) tick() int64 {
	g.clock++
	return g.clock
}

// begin notes that an operation is called. It has no answer so far.
func (g *registers) begin(client int, in register.Input, now int64) int {
	g.sum.ops++
	g.ops = append(g.ops, porcupine.Operation{
		ClientId: client, Input: in, Call: now, Output: register.Output{Unknown: true}, Return: register.Never,
	})
	return len(g.ops) - 1
}

// answer notes the answer of operation n.
func (g *registers) answer(n int, out register.Output, now int64) {
	g.ops[n].Output, g.ops[n].Return = out, now
}

func (g *registers) judge() error {
	result, guilty := register.Check(g.ops)
	if result == porcupine.Ok {
		return nil
	}
	text := ""
	for _, o := range guilty {
		text += fmt.Sprintf("  session %d, %d to %d: %s\n", o.ClientId, o.Call, o.Return, register.Model.DescribeOperation(o.Input, o.Output))
	}
	return fmt.Errorf("%d operations on a key are not linearizable (%v):\n%s", len(guilty), result, text)
}

// registerSession is one session of a run.
type registerSession struct {
	g     *registers
	id    int
	r     *rand.Rand
	s     index.Session
	left  int              // operations that are deferred still
	waits []waitingOutcome // of those that were
}

// waitingOutcome is what an operation that was deferred will have answered when it is durable.
type waitingOutcome struct {
	op  int
	out register.Output
}

func (w *registerSession) serve(c *owner) (err error) {
	if w.s, err = c.x.Session(); err != nil {
		return err
	}
	for range registerOps {
		if w.left == 0 && w.r.IntN(10) == 0 {
			w.left = 1 + w.r.IntN(8)
			w.s.Defer(true)
		}
		if w.r.IntN(8) == 0 {
			err = w.prepare()
		}
		switch {
		case err != nil:
		case w.r.IntN(8) == 0:
			err = w.batch()
		default:
			err = w.one(w.draw())
		}
		if err == nil && w.left > 0 {
			if w.left--; w.left == 0 {
				err = w.durable()
			}
		}
		if err != nil {
			return err
		}
	}
	if err := w.durable(); err != nil {
		return err
	}
	return w.s.Close()
}

func (w *registerSession) key() string {
	if w.r.IntN(3) > 0 {
		hot := registerHot
		if w.g.seed%2 == 1 || w.g.few { // more than there are frames
			hot *= 6
		}
		return string(simKey(uint64(w.r.IntN(hot) * registerKeys / hot)))
	}
	return string(simKey(w.r.Uint64N(registerKeys)))
}

func (w *registerSession) draw() register.Input {
	in := register.Input{Verb: register.Verb(w.r.IntN(int(register.NumVerbs))), Key: w.key()}
	switch {
	case w.r.IntN(3) == 0 && !w.g.few:
		in.Verb = register.Modify
	case w.r.IntN(3) > 0 && w.g.few:
		in.Verb = []register.Verb{register.Lookup, register.Update, register.Upsert}[w.r.IntN(3)]
	}
	if in.Verb.Changes() {
		w.g.next++
		in.Value = fmt.Sprint(w.g.next)
		length := w.r.IntN(w.g.opts.MaxValueBytes - len(in.Value) + 1)
		if w.g.few && w.r.IntN(8) > 0 {
			length = 4 - min(4, len(in.Value))
		}
		in.Value += fmt.Sprintf("%*s", length, "")
	}
	return in
}

// one performs an operation.
func (w *registerSession) one(in register.Input) error {
	n := w.g.begin(w.id, in, w.g.tick())
	s := toldSession{w.s, &w.g.sum}
	out, err := register.Perform(s, in)
	if err != nil {
		return err
	}
	w.answered(n, out, w.g.tick())
	return nil
}

// batch looks some keys up together.
func (w *registerSession) batch() error {
	var keys [][]byte
	var numbers []int
	now := w.g.tick()
	for range 1 + w.r.IntN(40) {
		keys = append(keys, []byte(w.key()))
		numbers = append(numbers, w.g.begin(w.id, register.Input{Verb: register.Lookup, Key: string(keys[len(keys)-1])}, now))
	}
	outs := make([]register.Output, len(keys))
	if err := w.s.LookupBatch(keys, func(i int, value []byte, err error) {
		outs[i] = register.Output{Found: err == nil, Value: string(value)}
	}); err != nil {
		return err
	}
	now = w.g.tick()
	for i, n := range numbers {
		w.answered(n, outs[i], now)
	}
	return nil
}

// prepare prepares for changes, some of which may come.
func (w *registerSession) prepare() error {
	var keys, values [][]byte
	for range 1 + w.r.IntN(40) {
		keys = append(keys, []byte(w.key()))
		var value []byte
		if w.r.IntN(4) > 0 {
			value = make([]byte, w.r.IntN(w.g.opts.MaxValueBytes+1))
		}
		values = append(values, value)
	}
	return w.s.Prepare(keys, values)
}

func (w *registerSession) answered(n int, out register.Output, now int64) {
	if w.left > 0 {
		w.g.sum.deferred++
		w.waits = append(w.waits, waitingOutcome{n, out})
		return
	}
	w.g.answer(n, out, now)
}

// durable waits for what was deferred, and answers it.
func (w *registerSession) durable() error {
	w.left = 0
	w.s.Defer(false)
	if position := w.s.Position(); position > 0 {
		if err := w.s.Durable(position); err != nil {
			return err
		}
	}
	now := w.g.tick()
	for _, d := range w.waits {
		w.g.answer(d.op, d.out, now)
	}
	w.waits = w.waits[:0]
	return nil
}
