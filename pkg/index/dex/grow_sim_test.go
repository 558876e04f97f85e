package dex_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// grownCounts are leaves that were divided beforehand, those that became three or more at once, and
// new ones that stayed empty and were merged.
type grownCounts struct{ divided, many, tidied int }

func (c *grownCounts) add(d grownCounts) {
	c.divided += d.divided
	c.many += d.many
	c.tidied += d.tidied
}

// check fails if not all of it happened.
func (c *grownCounts) check(t *testing.T) {
	t.Helper()
	if c.divided == 0 || c.many == 0 || c.tidied == 0 {
		t.Errorf("leaves divided beforehand: %+v: something never happened", *c)
	}
}

// grown is what all clients did.
func (o *owners) grown() (sum grownCounts) {
	for _, c := range o.all {
		if c.x != nil {
			divided, many, tidied := dex.Grown(c.x)
			sum.add(grownCounts{divided, many, tidied})
		}
	}
	return sum
}

// TestCrashWhileLeavesGrow kills a client after parts of its requests while it prepares for batches
// of new keys, which divide leaves into many, and while another session of it reads the same keys.
// The next owner finds every acknowledged change, and a tree in order.
func TestCrashWhileLeavesGrow(t *testing.T) {
	seeds, step := uint64(6), 131
	var sum grownCounts
	afterEachPart(t, seeds, step, func(t *testing.T, seed uint64, part int) (bool, error) {
		return crashGrowing(t, seed, part, &sum)
	})
	t.Logf("%+v", sum)
	sum.check(t)
}

func crashGrowing(t *testing.T, seed uint64, part int, sum *grownCounts) (ended bool, err error) {
	const keys = 300
	o, err := dying(t, seed, "client-1", part, keys, 256<<(seed/2%2), poolsim.Options{Servers: 1 + int(seed%2), Executor: executor, Chunks: 80, ChunkBytes: 32 << 10})
	if err != nil {
		return false, err
	}
	o.opts.InlineBytes = 0
	defer func() { sum.add(o.grown()) }()
	return o.untilItDies(keys, o.growAndShrink)
}

// growAndShrink puts and deletes runs of keys of g in batches, and gives g away.
func (o *owners) growAndShrink(c *owner, g *owned) error {
	s, err := c.x.Session()
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(o.seed, 11))
	over, ended := false, c.p.NewEvent()
	c.p.Go("peek", func() {
		defer ended.Set()
		if err := o.peekAll(c, g, &over); err != nil {
			o.w.Fail(err)
		}
	})
	for n := range 12 {
		if err := o.batchOfNew(s, g, n, r); err != nil {
			return err
		}
		if n%4 == 3 {
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

// batchOfNew prepares for a run of keys, and then puts them, deletes them, or updates those of them
// that are there, all of which is answered together.
func (o *owners) batchOfNew(s index.Session, g *owned, n int, r *rand.Rand) error {
	var keys, values [][]byte
	low, length, every := g.low+r.Uint64N(g.high-g.low), 20+r.Uint64N(45), 1+r.Uint64N(2)
	for i := low; i < min(g.high, low+length*every); i += every {
		keys, values = append(keys, simKey(i)), append(values, fmt.Appendf(nil, "v%d", n))
	}
	switch r.IntN(3) {
	case 0:
		slices.Reverse(keys)
	case 1:
		r.Shuffle(len(keys), func(i, k int) { keys[i], keys[k] = keys[k], keys[i] })
	}
	kind := r.IntN(4)
	if kind == 0 {
		values = make([][]byte, len(keys))
	}
	s.Defer(true)
	defer s.Defer(false)
	if err := s.Prepare(keys, values); err != nil {
		return err
	}
	for i, key := range keys {
		m := o.model[string(key)]
		switch kind {
		case 0:
			m.begin("")
			if err := s.Delete(key); err != nil && !errors.Is(err, index.ErrNotFound) {
				return err
			}
		case 1:
			if m.value != "" || len(m.maybe) > 0 {
				continue // an update would be made
			}
			if err := s.Update(key, values[i]); !errors.Is(err, index.ErrNotFound) {
				return fmt.Errorf("update of a key that is not there: %w", err)
			}
		default:
			m.begin(string(values[i]))
			if err := s.Upsert(key, values[i]); err != nil {
				return err
			}
		}
	}
	if err := s.Durable(s.Position()); err != nil {
		return err
	}
	for _, key := range keys {
		if m := o.model[string(key)]; m.open {
			m.ack()
		}
	}
	return nil
}

// TestNewKeysTakeFewRoundTrips: a new key of a prepared batch takes a small part of a round trip,
// besides those of the log: in ascending order, in descending order, and in random order among
// others. Without Prepare it takes at least twice as many.
func TestNewKeysTakeFewRoundTrips(t *testing.T) {
	defer dex.AlwaysLooks()()
	dex.OnFabrics(t, newKeysTakeFewRoundTrips)
}

func newKeysTakeFewRoundTrips(t *testing.T, o sim.Options) {
	const keys = 3840
	inSimulation(t, poolsim.Options{Servers: 2, Chunks: 200, ChunkBytes: 64 << 10, Fabric: o}, func(c *poolsim.Cluster, p *simenv.Process) error {
		x, s, err := openAll(c, p, nil, index.Options{MaxKeyBytes: 64, MaxValueBytes: 24, NodeBytes: 1024, CacheBytes: 16 << 20})
		if err != nil {
			return err
		}
		s.Defer(true)
		r := rand.New(rand.NewPCG(5, 5))
		key := func(run string, i int) []byte { return fmt.Appendf(nil, "%s-of-some-length-%012d", run, i) }
		load := func(run string, batch int, prepare bool, at func(i int) int) (float64, error) {
			before := s.Counters()
			for b := range keys / batch {
				var keys, values [][]byte
				for i := range batch {
					keys, values = append(keys, key(run, at(b*batch+i))), append(values, []byte("xxx"))
				}
				if prepare {
					if err := s.Prepare(keys, values); err != nil {
						return 0, err
					}
				}
				for i := range keys {
					if err := s.Upsert(keys[i], values[i]); err != nil {
						return 0, err
					}
				}
				if err := s.Durable(s.Position()); err != nil {
					return 0, err
				}
			}
			after := s.Counters()
			return float64(after.RoundTrips-before.RoundTrips) / keys, nil
		}
		alone, err := load("alone", 64, false, func(i int) int { return i })
		if err != nil {
			return err
		}
		random := r.Perm(keys)
		for _, row := range []struct {
			run   string
			batch int
			most  float64
			at    func(i int) int
		}{
			{"ascending", 64, 0.09, func(i int) int { return i }},
			{"more ascending", 256, 0.07, func(i int) int { return i }},
			{"descending", 64, 0.15, func(i int) int { return keys - i }},
			{"random", 64, 0.4, func(i int) int { return random[i] }},
		} {
			trips, err := load(row.run, row.batch, true, row.at)
			if err != nil {
				return err
			}
			t.Logf("%s: %.3f round trips a key, ascending without Prepare %.3f", row.run, trips, alone)
			if trips > row.most {
				t.Errorf("%s: %.3f round trips a key, want at most %.3f", row.run, trips, row.most)
			}
			if row.run != "random" && trips > alone/2 {
				t.Errorf("%.3f round trips a key, without Prepare %.3f", trips, alone)
			}
		}
		st, err := x.(index.Checker).Check()
		if err != nil {
			return err
		}
		if st.Pairs != 5*keys {
			return fmt.Errorf("%d pairs", st.Pairs)
		}
		return s.Close()
	})
}
