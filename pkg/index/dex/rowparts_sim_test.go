package dex

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
)

// TestEntriesMoveBesideSessions: sessions look for entries, keep, change and absorb them, each by
// the steps of rowCache and entrychange.go, while buckets come and go. The steps of the tree are a
// model: a key has a value in memory, and a frame or none. Values count up.
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
			x := &dex{env: p}
			x.with, _ = techniquesOf(nil)
			x.cache = newCache(p, x.with, entryShare*(8<<10), 256)
			m := &movedBeside{x: x, e: &x.cache.rows, keys: make([]movedKey, 25<<(3*(seed%2)))}
			m.run(p, w, rand.New(rand.NewPCG(seed, 1)))
			sum.resized += m.resized
			sum.found += m.found
			sum.unwritten += m.unwritten
			sum.absorbed += m.absorbed
		}); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	t.Logf("%d resized, %d found, %d of them unwritten, %d absorbed", sum.resized, sum.found, sum.unwritten, sum.absorbed)
	if least := 10 * seeds; sum.resized < least || sum.found < least || sum.unwritten < least || sum.absorbed < least {
		t.Error("this tests nothing")
	}
}

type movedBeside struct {
	x                                   *dex
	e                                   *rowCache
	keys                                []movedKey
	resized, found, unwritten, absorbed int
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
				if m.e.resize(m.x, more) {
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
	case 0, 1:
		m.keep(k, key)
		return nil
	case 2, 3:
		m.change(k, key)
		return nil
	case 4:
		return m.fill(k, key)
	}
	before := *k
	got, lsn, st := m.e.look(m.x, key, nil)
	if st == absentee && before.memory < before.low && k.memory < k.low && k.evictions == before.evictions {
		return fmt.Errorf("the unwritten entry of key %x is not there: %+v", key, *k)
	}
	if st != done {
		return nil
	}
	if m.found++; lsn != 0 {
		m.unwritten++
	}
	if v := binary.BigEndian.Uint64(got); v < before.low || v > k.high || lsn != 0 && lsn != v {
		return fmt.Errorf("key %x has the value %d at %d: %d to %d are right", key, v, lsn, before.low, k.high)
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
	m.x.pause()
	m.e.enter(m.x, key, value, func() bool { return !k.frame && k.evictions == since })
}

// change is what changeEntry does. The position is the value.
func (m *movedBeside) change(k *movedKey, key []byte) {
	p, b, ok := m.e.acquire(key)
	if !ok {
		return
	}
	defer unlock(b)
	number, at, head := seek(b, p.head, key)
	if head == 0 || head&stale != 0 {
		return
	}
	used := 0
	for at := bucketBegin; at < len(b) && b[at] != 0; at += extent(b[at]) {
		used += int(b[at]&unwritten/unwritten) * extent(b[at])
	}
	if head&unwritten == 0 && used+4 > (len(b)-bucketBegin)/unwrittenShare {
		return
	}
	k.high++
	m.x.pause()
	m.e.rewrite(p.bucket, number, at, p.head|unwritten, key, binary.BigEndian.AppendUint64(nil, k.high), count(b, number), k.high)
	k.low = k.high
}

// fill is what who fills a frame does, until it is evicted.
func (m *movedBeside) fill(k *movedKey, key []byte) error {
	if k.frame {
		return nil
	}
	k.frame = true
	m.x.pause()
	if !m.e.lacks(m.e.place(key)) {
		p, b, err := m.x.lockPlace(key)
		if err != nil {
			return err
		}
		switch number, at, head := seek(b, p.head, key); {
		case head == 0:
		case head&unwritten == 0:
			b[at] = head | stale
		default:
			value := valueAt(b, at, head, nil)
			k.memory = binary.BigEndian.Uint64(value)
			m.e.rewrite(p.bucket, number, at, p.head|stale, key, value, count(b, number), 0)
			m.absorbed++
		}
		unlock(b)
	}
	m.x.pause()
	if k.memory != k.high {
		return fmt.Errorf("the frame of key %x gets the value %d in place of %d", key, k.memory, k.high)
	}
	m.x.checkNoEntry(key)
	k.high++
	m.x.pause()
	k.memory, k.low = k.high, k.high
	k.evictions++
	if k.memory%2 == 0 { // demote
		m.e.leave(m.x, key, binary.BigEndian.AppendUint64(nil, k.memory))
	}
	k.frame = false
	return nil
}
