package dex_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// TestCrashInBulkLoad kills a client after parts of its requests while it fills an index and
// empties it, loads it, and changes some of what it has loaded. The index belongs to one holding or
// to several with an epoch each. The next client finds the whole load or nothing of it; the whole
// of it and every later change if these were acknowledged. What the log has from before the load is
// not among it. See afterEachPart.
func TestCrashInBulkLoad(t *testing.T) {
	seeds, step := uint64(8), 29
	afterEachPart(t, seeds, step, crashInBulkLoad)
}

const (
	loadedKeys  = 48
	writerPause = 120 * time.Millisecond // the writer has looked meanwhile
)

func crashInBulkLoad(t *testing.T, seed uint64, part int) (ended bool, err error) {
	// So many locks that no two leaves share one: where they do they are not merged, and the index
	// is not empty enough to be loaded.
	o, err := dying(t, seed, "client-1", part, loadedKeys, 256, poolsim.Options{Servers: 1 + int(seed/2%2), Executor: executor, Locks: 1024})
	if err != nil {
		return false, err
	}
	b := &bulk{owners: o, r: rand.New(rand.NewPCG(seed, 11))}
	return ended, o.w.Run(func(p *simenv.Process) {
		o.main = p
		err := b.run()
		ended = o.made == 1 && len(o.living) == 1
		if err == nil {
			err = o.last()
		}
		if err == nil {
			err = b.judge()
		}
		if err != nil {
			o.w.Fail(err)
		}
	})
}

// bulk is a bulk load and what comes before and after it.
type bulk struct {
	*owners
	r      *rand.Rand
	began  bool // the load
	acked  bool
	loaded map[string]string // what its source has, of the keys that were not changed since
}

// run lets client 1 do it, and die during it.
func (b *bulk) run() error {
	o := b.owners
	ranges := uint64(1 + o.seed%3)
	for i := range ranges {
		g := &owned{low: i * loadedKeys / ranges, high: (i + 1) * loadedKeys / ranges}
		if g.start = simKey(g.low); i+1 < ranges {
			g.end = simKey(g.high)
		}
		o.ranges = append(o.ranges, g)
	}
	if !o.make() {
		return nil
	}
	c := o.living[0]
	for _, g := range o.ranges {
		if err := o.moveTo(g, c); err != nil || c.p.Dead() {
			return err
		}
	}
	alive, err := o.in(c, "load", func() error { return b.load(c) })
	if err == nil && !alive {
		o.died(c)
	}
	return err
}

func (b *bulk) load(c *owner) error {
	s, err := c.x.Session()
	if err != nil {
		return err
	}
	if err := b.fillAndEmpty(s); err != nil {
		return err
	}
	if b.seed%4 == 1 { // the writer truncates the log meanwhile
		c.p.Sleep(writerPause)
	}
	source := errors.New("the source failed")
	if b.seed%3 == 0 {
		err := c.x.BulkLoad(func(yield func(key, value []byte) bool) error {
			yield(simKey(3), []byte("never"))
			return source
		}, 1)
		if !errors.Is(err, source) {
			return fmt.Errorf("a bulk load whose source fails: %w", err)
		}
	}
	b.loaded = map[string]string{}
	for n := range uint64(loadedKeys) {
		if b.r.IntN(4) > 0 {
			m := b.model[string(simKey(n))]
			v := fmt.Sprintf("loaded %*d", 1+b.r.IntN(16), n)
			b.loaded[string(simKey(n))] = v
			m.begin(v)
		}
	}
	b.began = true
	if err := c.x.BulkLoad(func(yield func(key, value []byte) bool) error {
		for n := range uint64(loadedKeys) {
			if v, ok := b.loaded[string(simKey(n))]; ok && !yield(simKey(n), []byte(v)) {
				break
			}
		}
		return nil
	}, 1+b.r.IntN(2)); err != nil {
		return err
	}
	for key := range b.loaded {
		b.model[key].ack()
	}
	b.acked = true
	if b.seed%4 == 2 {
		c.p.Sleep(writerPause)
	}
	for range 20 {
		key := simKey(b.r.Uint64N(loadedKeys))
		delete(b.loaded, string(key))
		if err := b.operate(s, key, b.r); err != nil {
			return err
		}
	}
	if err := b.look(c); err != nil {
		return err
	}
	return s.Close()
}

// fillAndEmpty leaves records of most keys in the log, the last of which says that the key is
// deleted, and an index of one leaf.
func (b *bulk) fillAndEmpty(s index.Session) error {
	for range 40 {
		if err := b.put(s, simKey(b.r.Uint64N(6)), b.r); err != nil {
			return err
		}
	}
	for n := range uint64(6) {
		key := simKey(n)
		m := b.model[string(key)]
		m.begin("")
		if err := s.Delete(key); err != nil && !errors.Is(err, index.ErrNotFound) {
			return err
		}
		m.ack()
	}
	return nil
}

// judge looks at what was loaded as a whole: nothing of it is there without the rest.
func (b *bulk) judge() error {
	if !b.began || b.acked {
		return nil
	}
	n := 0
	for key, v := range b.loaded {
		if m := b.model[key]; m.value == v {
			n++
		}
	}
	if n > 0 && n < len(b.loaded) {
		return fmt.Errorf("%d of %d pairs of a bulk load are there", n, len(b.loaded))
	}
	return nil
}

// TestBulkLoadBesideChanges lets sessions of the loading client change keys while a load is under
// way. One that was acknowledged before the load's last step ends the load with ErrNotEmpty, and
// stays; one that comes later finds what was loaded.
func TestBulkLoadBesideChanges(t *testing.T) {
	seeds, failed := uint64(60), 0
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		o, err := dying(t, seed, "nobody", 1<<30, loadedKeys, 256, poolsim.Options{Servers: 1, Executor: executor})
		if err != nil {
			t.Fatal(err)
		}
		if err := o.w.Run(func(p *simenv.Process) {
			o.main = p
			refused, err := o.loadBeside()
			if err != nil {
				o.w.Fail(err)
			}
			if refused {
				failed++
			}
		}); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if failed == 0 || failed == int(seeds) {
		t.Errorf("of %d loads %d were refused", seeds, failed)
	}
}

func (o *owners) loadBeside() (refused bool, err error) {
	g := &owned{low: 0, high: loadedKeys, start: simKey(0)}
	o.ranges = []*owned{g}
	o.make()
	c := o.living[0]
	if err := o.moveTo(g, c); err != nil {
		return false, err
	}
	// The load has the even keys; the session changes odd ones, and inserts even ones, which it
	// finds there once they are loaded.
	delay := c.p.Uint64() % 30
	inserted := map[uint64]string{}
	_, err = o.in(c, "load", func() error {
		group := env.NewWaitGroup(c.p)
		var changed error
		group.Go("change", func() { changed = o.changeBeside(c, delay, inserted) })
		err := c.x.BulkLoad(func(yield func(key, value []byte) bool) error {
			for n := uint64(0); n < loadedKeys && yield(simKey(n), fmt.Append(nil, "loaded ", n)); n += 2 {
				c.p.Yield()
			}
			return nil
		}, 1)
		if refused = errors.Is(err, index.ErrNotEmpty); refused {
			err = nil
		}
		group.Wait(env.Forever)
		return errors.Join(err, changed)
	})
	for n := range uint64(loadedKeys) {
		want := inserted[n]
		if want == "" && n%2 == 0 && !refused {
			want = fmt.Sprint("loaded ", n)
		}
		o.model[string(simKey(n))].value = want
	}
	if err == nil {
		err = o.last()
	}
	if err == nil { // the same from the log and the memory servers
		c.p.Kill()
		o.died(c)
		err = o.last()
	}
	return refused, err
}

// changeBeside inserts a few keys.
func (o *owners) changeBeside(c *owner, delay uint64, inserted map[uint64]string) error {
	s, err := c.x.Session()
	if err != nil {
		return err
	}
	for range delay * 20 {
		c.p.Yield()
	}
	for i := range uint64(4) {
		n := 5*delay%loadedKeys/4*4 + i
		v := fmt.Sprint("inserted ", i)
		switch err := s.Insert(simKey(n), []byte(v)); {
		case err == nil:
			inserted[n] = v
		case !errors.Is(err, index.ErrExists):
			return err
		}
	}
	return s.Close()
}
