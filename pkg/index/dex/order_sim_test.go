package dex_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestRecordsComeFirst looks at the memory servers all the time: no leaf, nor an image of one, has
// a value that the log does not have. So whenever its client dies, what anybody can have read of it
// is in the log: also what a split puts into a leaf that can be found at once, and what is written
// back.
func TestRecordsComeFirst(t *testing.T) {
	splits := 0
	for i := range uint64(8) {
		cache := 1 << 10
		if i%2 == 1 { // leaves stay, and become many beforehand
			cache = 1 << 20
		}
		splits += watchedWorld(t, i, index.Options{Uint64: true, MaxValueBytes: 24, NodeBytes: 256, CacheBytes: cache}, (*owners).writeWatched)
	}
	t.Logf("%d leaves", splits)
	if splits < 100 {
		t.Errorf("only %d leaves: nothing was split", splits)
	}
}

// watchedWorld makes world i, with clients that have all techniques, so that there is a log, and
// returns what do counted in it. do looks at the memory servers between any two steps.
func watchedWorld(t *testing.T, i uint64, opts index.Options, do func(*owners) (int, error)) (n int) {
	seed := 3 * i
	o := &owners{t: t, r: rand.New(rand.NewPCG(seed, 9)), seed: seed, model: map[string]*known{}, opts: opts}
	plan := &sim.Plan{Tear: 1, Reorder: true, Delay: time.Duration(1 + 400*(i%3)), Gap: 100, Capabilities: verbs.Capabilities{WholeWrite: 8, MaskedAtomics: true}}
	o.w = simenv.New(simenv.Options{Seed: seed, MaxEvents: 20_000_000})
	var err error
	if o.c, err = poolsim.New(o.w, poolsim.Options{Servers: 2, Chunks: 20, ChunkBytes: 32 << 10, Locks: 64, Lease: 100 * time.Millisecond, Fabric: sim.Options{Plan: plan}}); err != nil {
		t.Fatal(err)
	}
	err = o.w.Run(func(p *simenv.Process) {
		o.main = p
		if n, err = do(o); err != nil {
			o.w.Fail(err)
		}
	})
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	return n
}

const watchedKeys = 60

// writeWatched writes keys in a random order, each value another one, while the memory is watched.
// Some are deferred. What comes next is prepared for before they are durable, as in a pipeline, or
// evicts their leaves, or their range is given.
func (o *owners) writeWatched() (leaves int, err error) {
	g := &owned{low: 0, high: watchedKeys, start: simKey(0)}
	o.ranges = []*owned{g}
	o.make()
	c := o.living[0]
	if err := o.moveTo(g, c); err != nil {
		return 0, err
	}
	var value, deferred []byte
	over, ended := false, o.main.NewEvent()
	o.main.Go("watch", func() {
		defer ended.Set()
		for ; !over; o.main.Yield() {
			for _, value := range [][]byte{value, deferred} {
				if leaf, log := o.where(value); leaf && !log {
					o.w.Fail(fmt.Errorf("value %s is in a leaf and not in the log", value))
					return
				}
			}
		}
	})
	_, err = o.in(c, "write", func() error {
		s, err := c.x.Session()
		if err != nil {
			return err
		}
		r := rand.New(rand.NewPCG(o.seed, 11))
		for n, k := range append(r.Perm(watchedKeys), r.Perm(watchedKeys)...) {
			value = fmt.Appendf(nil, "value %017d", n)
			s.Defer(n%3 == 0)
			if n%3 == 0 {
				deferred = value
			}
			if err := s.Upsert(simKey(uint64(k)), value); err != nil {
				return err
			}
			if n%3 > 0 || n%2 > 0 { // what comes next may evict its leaf
				continue
			}
			var keys, values [][]byte
			for i := range 20 {
				keys, values = append(keys, simKey(uint64(k)+uint64(i*n%7))), append(values, value)
			}
			if err := errors.Join(s.Prepare(keys, values), s.Durable(s.Position())); err != nil {
				return err
			}
		}
		if grown, _, _ := dex.Grown(c.x); grown == 0 && o.opts.CacheBytes > 1<<10 {
			return errors.New("no leaf was divided beforehand")
		}
		deferred = []byte("value that is given away")
		s.Defer(true)
		if err := s.Upsert(simKey(watchedKeys/2), deferred); err != nil {
			return err
		}
		if _, err := c.x.Give(g.start, g.end); err != nil {
			return err
		}
		found, err := c.x.(index.Checker).Check()
		leaves = found.Nodes
		if err != nil {
			return err
		}
		return s.Close()
	})
	over = true
	ended.Wait(env.Forever)
	return leaves, err
}

// where reports whether the memory of leaves and that of the log have a value.
func (o *owners) where(value []byte) (leaf, log bool) {
	if value == nil {
		return false, false
	}
	for _, k := range o.c.Chunks() {
		for _, node := range k.Nodes() {
			if !bytes.Contains(node, value) {
				continue
			}
			if len(node) == o.opts.NodeBytes {
				leaf = true
			} else {
				log = true
			}
		}
	}
	return leaf, log
}
