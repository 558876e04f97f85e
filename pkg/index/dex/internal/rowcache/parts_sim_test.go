package rowcache

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
)

// TestEntriesMoveBesideSessions: sessions look for entries, keep them and take them out, each by
// the steps of the package, while buckets come and go. The steps of the tree are a model: a key has
// a value in memory, and a frame or none. Values count up.
func TestEntriesMoveBesideSessions(t *testing.T) {
	seeds := 80
	if testing.Short() {
		seeds = 10
	}
	first, sum := rand.Uint64(), movedBeside{}
	t.Logf("seeds from %d on", first)
	for seed := first; seed < first+uint64(seeds); seed++ {
		w := simenv.New(simenv.Options{Seed: seed, MaxEvents: 20_000_000})
		if err := w.Run(func(p *simenv.Process) {
			m := &movedBeside{env: p, e: new(Cache), keys: make([]movedKey, 25<<(3*(seed%2)))}
			startFew(m.e, p, 8<<10)
			m.run(p, w, rand.New(rand.NewPCG(seed, 1)))
			sum.resized += m.resized
			sum.found += m.found
			sum.taken += m.taken
		}); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	t.Logf("%d resized, %d found, %d taken out", sum.resized, sum.found, sum.taken)
	if least := 10 * seeds; sum.resized < least || sum.found < least || sum.taken < least {
		t.Error("this tests nothing")
	}
}

type movedBeside struct {
	env                   env.Env
	e                     *Cache
	keys                  []movedKey
	resized, found, taken int
}

// movedKey is what the model has of a key. Values up to low have been put, from high on none has
// been begun.
type movedKey struct {
	low, high uint64
	memory    uint64 // the value that the memory server has
	frame     bool   // its leaf has one
	evictions int
}

func (m *movedBeside) run(p *simenv.Process, w *simenv.World, r *rand.Rand) {
	g, running := env.NewWaitGroup(p), 5
	for range running {
		r := rand.New(rand.NewPCG(r.Uint64(), 1))
		g.Go("session", func() {
			for step := 0; step < 400; step++ {
				if err := m.operate(r); err != nil {
					w.Fail(fmt.Errorf("step %d: %w", step, err))
					return
				}
				p.Yield()
			}
			running--
		})
	}
	g.Go("resize", func() {
		for running > 0 {
			// many buckets come or go, or a few come and go
			more, both := r.IntN(2) == 0, r.IntN(2) == 0
			for range 1 + r.IntN(8) {
				if both {
					more = r.IntN(2) == 0
				}
				if m.e.Resize(more) {
					m.resized++
				}
			}
			p.Yield()
		}
	})
	g.Wait(env.Forever)
}

func (m *movedBeside) operate(r *rand.Rand) error {
	n := r.IntN(len(m.keys))
	k, key := &m.keys[n], binary.BigEndian.AppendUint64(nil, uint64(n)<<20)
	switch r.IntN(8) {
	case 0, 1, 2:
		m.keep(k, key)
		return nil
	case 3:
		return m.fill(k, key)
	}
	before := *k
	got, st := m.e.look(key, nil)
	if st != found {
		return nil
	}
	m.found++
	if v := binary.BigEndian.Uint64(got); v < before.low || v > k.high {
		return fmt.Errorf("key %x has the value %d: %d to %d are right", key, v, before.low, k.high)
	}
	return nil
}

// keep is what who READ the leaf does.
func (m *movedBeside) keep(k *movedKey, key []byte) {
	if k.frame {
		return
	}
	since := k.evictions
	value := binary.BigEndian.AppendUint64(nil, k.memory)
	op.Pause(m.env)
	m.e.Put(key, value, func() bool { return !k.frame && k.evictions == since })
}

// fill is what who fills a frame does, until it is evicted.
func (m *movedBeside) fill(k *movedKey, key []byte) error {
	if k.frame {
		return nil
	}
	k.frame = true
	op.Pause(m.env)
	if !m.e.Lacks(key) {
		had, err := m.e.Invalidate(key)
		if err != nil {
			return err
		}
		if had {
			m.taken++
		}
	}
	op.Pause(m.env)
	m.e.CheckNone(key)
	k.high++
	op.Pause(m.env)
	k.memory, k.low = k.high, k.high
	k.evictions++
	if k.memory%2 == 0 { // demote
		m.e.Put(key, binary.BigEndian.AppendUint64(nil, k.memory), nil)
	}
	k.frame = false
	return nil
}
