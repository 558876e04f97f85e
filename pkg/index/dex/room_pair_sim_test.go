package dex_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
)

// TestPairInFullPool: two clients take the two sides of a leaf at once, of which a dead one's log
// changes both, while the pool has no node left to divide it. Who is through first uses its keys
// while the other one replays.
func TestPairInFullPool(t *testing.T) {
	undivided, seeds := 0, uint64(12)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		f, ended, err := pairInFullPool(t, seed, 1<<30)
		if err != nil || !ended {
			t.Fatalf("seed %d: ended %v, %v", seed, ended, err)
		}
		t.Logf("seed %d: %d insertions, %d deletions logged, keys from %d on are the other one's; refused %d times, grown: %v", seed, f.insertions, f.deletions, f.middle, f.refused, f.grown)
		if f.refused > 0 {
			undivided++
		}
	}
	if undivided < int(seeds)/2 {
		t.Errorf("in %d runs of %d a client found no memory: the pools are not full", undivided, seeds)
	}
}

// TestCrashInFullPair kills one of the two after parts of its requests. See afterEachPart.
func TestCrashInFullPair(t *testing.T) {
	seeds, step := uint64(6), 331
	afterEachPart(t, seeds, step, func(t *testing.T, seed uint64, part int) (bool, error) {
		_, ended, err := pairInFullPool(t, seed, part)
		return ended, err
	})
}

// pairInFullPool is a run of two takers. Without deletions they wait for memory, and with them they
// make some.
func pairInFullPool(t *testing.T, seed uint64, part int) (f *fullReplay, ended bool, err error) {
	_, f, ended, err = fullReplayWith(t, seed, part, &fullReplay{deletions: 60 * int(seed/2%2), pause: 30 * time.Microsecond, pair: true})
	return f, ended, err
}

// around chooses where the upper one's keys begin: at one that found no memory, so within a full
// leaf. It returns keys there, on both sides, which the log deletes or changes, too.
func (f *fullReplay) around(there, refused []uint64) []uint64 {
	slices.Sort(refused)
	f.middle = refused[len(refused)*2/3]
	at, _ := slices.BinarySearch(there, f.middle)
	to := min(at+8, len(there)-1)
	return there[min(max(f.deletions+20, at-8), to):to]
}

// takeBoth lets two clients take the two parts of g at once.
func (f *fullReplay) takeBoth(g *owned) error {
	o := f.o
	above := &owned{low: f.middle, high: g.high, start: simKey(f.middle), end: g.end, inherits: slices.Clone(g.inherits)}
	above.inherits[0].Start = above.start
	g.end, g.high, g.inherits[0].End = above.start, f.middle, above.start
	o.ranges = append(o.ranges, above)
	for len(o.living) < 2 {
		o.make() // in the chunk for the dead one's log
	}
	takers := []*owner{o.living[0], o.living[1]}
	r := rand.New(rand.NewPCG(o.seed, 13))
	var failed error
	both := env.NewWaitGroup(o.main)
	for i, part := range []*owned{g, above} {
		lag := time.Duration(r.IntN(200)) * time.Microsecond
		both.Go("take a part", func() {
			o.main.Sleep(lag)
			failed = errors.Join(failed, f.takeAndUse(takers[(i+int(o.seed))%2], part))
		})
	}
	// else when one has found none for long
	if later := time.Duration(r.IntN(3000)) * time.Microsecond; r.IntN(3) > 0 {
		both.Go("grow", func() {
			o.main.Sleep(later)
			f.grown = true
			f.grow()
		})
	}
	both.Wait(env.Forever)
	return failed
}

// takeAndUse lets c take g and use its keys, or another one if that dies.
func (f *fullReplay) takeAndUse(c *owner, g *owned) error {
	o := f.o
	for {
		if err := f.takeAs(c, g); err != nil {
			return err
		}
		if g.by == c {
			alive, err := o.in(c, "use", func() error { return f.use(c, g) })
			if err != nil || alive {
				return err
			}
			o.died(c)
		}
		for !o.make() {
		}
		c = o.living[len(o.living)-1]
	}
}

// use changes and reads keys of g that are close to those of the other one.
func (f *fullReplay) use(c *owner, g *owned) error {
	s, err := c.x.Session()
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(f.o.seed, g.epoch))
	for range 40 {
		n := max(g.low, min(g.high-1, f.middle-12+r.Uint64N(24)))
		key := simKey(n)
		m := f.o.model[string(key)]
		was := *m
		switch r.IntN(4) {
		case 0:
			got, err := s.Lookup(key, nil)
			if err == nil || errors.Is(err, index.ErrNotFound) {
				err = m.saw(key, string(got))
			}
			if err != nil {
				return fmt.Errorf("after %x to %x were taken: %w", g.start, g.end, err)
			}
			continue
		case 1:
			m.begin("")
			if err = s.Delete(key); errors.Is(err, index.ErrNotFound) {
				err = nil
			}
		default:
			m.begin(string(f.value(r)))
			err = s.Upsert(key, []byte(m.pending))
		}
		switch {
		case err == nil:
			m.ack()
		case errors.Is(err, index.ErrPoolFull):
			*m = was
		default:
			return err
		}
	}
	return s.Close()
}
