package dex_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestCrashAnywhere kills a client after parts of its requests while it deletes a few keys and
// inserts them anew all the time, until it has given its range away: so between any two words of a
// flush. The next owner finds every acknowledged change, and a tree in order. See afterEachPart.
func TestCrashAnywhere(t *testing.T) {
	seeds, step := uint64(6), 23
	var early earlyCounts
	resized := 0
	all := afterEachPart(t, seeds, step, func(t *testing.T, seed uint64, part int) (bool, error) {
		return crashAnywhere(t, seed, part, &early, &resized)
	})
	t.Logf("records beside READs: %+v, %d changes of the share of entries", early, resized)
	if !all {
		return
	}
	checkResized(t, resized)
	if early.made == 0 || early.refused == 0 {
		t.Errorf("records beside READs: %+v: something never happened", early)
	}
}

// afterEachPart does runs in which a client dies after a part of its requests, until it gets to its
// end alive. It is a sample: every step-th part is tried, of each seed from another one on.
// DMINDEX_SIM_STEP=1 tries every part of every request: make sim DESIGN=dex-crashes. all: none of
// so many seeds was left out.
func afterEachPart(t *testing.T, count uint64, step int, run func(t *testing.T, seed uint64, part int) (ended bool, err error)) (all bool) {
	t.Helper()
	seeds := simtest.Read(t, "dex-crashes", "pkg/index/dex", count)
	step = simtest.Step(t, step)
	crashes := 0
	for seed := range seeds.OneByOne() {
		for part := 1 + int(seed)%step; ; part += step {
			ended, err := run(t, seed, part)
			if err != nil {
				t.Fatalf("seed %d, dead after part %d: %v\n%s", seed, part, err, seeds.Replay(seed))
			}
			if ended {
				break
			}
			crashes++
		}
	}
	t.Logf("%d crashes, after every %d. part", crashes, step)
	return seeds.First == 1 && seeds.Count >= count
}

// dyingCaches are of clients that crash: one has room for all leaves, the others evict.
var dyingCaches = []int{1 << 20, 12 << 10, 3 << 10}

// dying is a world for few keys whose client of this name dies after a part of its requests. change
// may change its plan.
func dying(t *testing.T, seed uint64, client string, part int, keys uint64, nodeBytes int, pool poolsim.Options, change ...func(*sim.Plan)) (o *owners, err error) {
	o = &owners{t: t, r: rand.New(rand.NewPCG(seed, 9)), seed: seed, model: map[string]*known{}, opts: index.Options{Uint64: true, MaxValueBytes: 24, NodeBytes: nodeBytes, CacheBytes: dyingCaches[seed%uint64(len(dyingCaches))]}}
	if seed%2 == 1 { // many values lie in blocks
		o.opts.InlineBytes = 6
		pool.RenewEvery = 50 * time.Microsecond
	}
	for n := range keys {
		o.model[string(simKey(n))] = &known{}
	}
	whole := 8
	switch {
	case seed/2%2 == 1: // the pool rewrites nodes as a whole
		whole = 4096
	case seed%4 == 0: // leaves are longer
		whole = 64
	}
	o.plan = &sim.Plan{Tear: 1 + int(seed)%8, Reorder: true, Delay: 100, Gap: 100, Capabilities: verbs.Capabilities{WholeWrite: whole, WholeAlways: true, MaskedAtomics: seed%2 == 0},
		Faults: []sim.Fault{{Kind: sim.Crash, Process: client, Part: part}}}
	for _, f := range change {
		f(o.plan)
	}
	o.w = simenv.New(simenv.Options{Seed: seed, MaxEvents: 5_000_000})
	if pool.Chunks == 0 {
		pool.Chunks, pool.ChunkBytes = 40, 32<<10
	}
	pool.Locks, pool.Lease, pool.Fabric = max(64, pool.Locks), 100*time.Millisecond, sim.Options{Plan: o.plan}
	o.c, err = poolsim.New(o.w, pool)
	return o, err
}

// fewKeys are in a few leaves. Those of moreKeys are more than the smallest cache has frames for.
const (
	fewKeys  = 30
	moreKeys = 120
)

func crashAnywhere(t *testing.T, seed uint64, part int, early *earlyCounts, resized *int) (ended bool, err error) {
	keys, nodeBytes := uint64(fewKeys), 256<<(seed%2)
	if seed%3 > 0 {
		keys, nodeBytes = moreKeys, 256
	}
	o, err := dying(t, seed, "client-1", part, keys, nodeBytes, poolsim.Options{Servers: 1, Executor: executor})
	if err != nil {
		return false, err
	}
	if seed%3 == 1 {
		o.opts.CacheBytes = dyingCaches[2]
		o.opts.Switches = map[string]bool{"offloading": false}
	}
	if seed%3 == 2 { // many entries and few frames
		defer dex.MostlyEntries()()
		o.opts.CacheBytes, o.opts.InlineBytes = 5<<10, 0
	}
	defer func() { early.add(o.early()); *resized += o.resized() }()
	return o.untilItDies(keys, o.churn)
}

// untilItDies lets one client have all keys, and serve and give them away, until it ends or dies;
// then others do what is left.
func (o *owners) untilItDies(keys uint64, serve func(c *owner, g *owned) error) (ended bool, err error) {
	return ended, o.w.Run(func(p *simenv.Process) {
		o.main = p
		g := &owned{low: 0, high: keys, start: simKey(0)}
		o.ranges = []*owned{g}
		if o.make() {
			c := o.living[0]
			alive := true
			err := o.moveTo(g, c)
			if err == nil && g.by == c {
				alive, err = o.in(c, "serve and give", func() error { return serve(c, g) })
			}
			switch {
			case err != nil:
				o.w.Fail(err)
			case !alive:
				o.died(c)
			case g.by == c:
				g.by, ended = nil, true
			}
		}
		if err := o.last(); err != nil {
			o.w.Fail(err)
		}
	})
}

// churn does operations on the keys of g, writing all back now and then, and gives g away.
func (o *owners) churn(c *owner, g *owned) error {
	s, err := c.x.Session()
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(o.seed, 10))
	over, ended := false, c.p.NewEvent()
	c.p.Go("peek", func() {
		defer ended.Set()
		err := o.peekAll(c, g, &over)
		if err != nil {
			o.w.Fail(err)
		}
	})
	for n := uint64(0); n < g.high && g.high > fewKeys; n += 2 {
		m := o.model[string(simKey(n))]
		m.begin("first")
		if err := s.Upsert(simKey(n), []byte("first")); err != nil {
			return err
		}
		m.ack()
	}
	for n := range 120 {
		key := simKey(r.Uint64N(g.high))
		if o.seed%3 == 2 && n%3 > 0 { // their entries change again and again
			key = simKey(r.Uint64N(12) * g.high / 12)
		}
		m := o.model[string(key)]
		value, kind := fmt.Sprint("value ", n), r.IntN(6)
		if g.high > fewKeys { // changes with a condition, of values that lie in no block
			value, kind = fmt.Sprint("v", n), max(kind, 2+n%3)
		}
		switch kind {
		case 0, 1, 2:
			m.begin("")
			if err := s.Delete(key); err != nil && !errors.Is(err, index.ErrNotFound) {
				return err
			}
			m.ack()
		case 3:
			err = m.try(key, value, false, index.ErrExists, func() error { return s.Insert(key, []byte(value)) })
		case 4:
			err = m.try(key, value, true, index.ErrNotFound, func() error { return s.Update(key, []byte(value)) })
		default:
			m.begin(value)
			if err := s.Upsert(key, []byte(value)); err != nil {
				return err
			}
			m.ack()
		}
		if err != nil {
			return err
		}
		if n%20 == 19 {
			if _, err := c.x.(index.Checker).Check(); err != nil {
				return err
			}
		}
	}
	over = true
	ended.Wait(env.Forever)
	if err := s.Close(); err != nil {
		return err
	}
	_, err = c.x.Give(g.start, g.end)
	return err
}

// peekAll reads all keys of g, again and again until it is over, and of two that which is being
// changed, if one is: what it sees must outlive the client.
func (o *owners) peekAll(c *owner, g *owned, over *bool) error {
	s, err := c.x.Session()
	if err != nil {
		return err
	}
	for n := g.low; !*over; n = (n + 1) % g.high {
		key := simKey(n)
		for i := g.low; i < g.high && n%2 == 0; i++ {
			if o.model[string(simKey(i))].open {
				key = simKey(i)
			}
		}
		if err := o.peek(s, key); err != nil {
			return err
		}
		c.p.Sleep(20 * time.Nanosecond) // less than a request takes
	}
	return s.Close()
}
