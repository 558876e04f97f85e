package slottedtree

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
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// inTree runs body in a calm world, with a tree of which n sessions are open.
func inTree(t *testing.T, c Config, n int, body func(c *poolsim.Cluster, p *simenv.Process, x *Tree, s []*Session)) {
	t.Helper()
	c.Design = index.Design{Name: "test"}
	w := simenv.New(simenv.Options{Seed: 1})
	cluster, err := poolsim.New(w, poolsim.Options{Servers: 1})
	fatal(t, err)
	fatal(t, w.Run(func(p *simenv.Process) {
		cl, err := cluster.Open(p)
		fatal(t, err)
		x, err := Open(cl, c)
		fatal(t, err)
		s := make([]*Session, n)
		for i := range s {
			s[i], err = x.NewSession()
			fatal(t, err)
			// its descent is from the cache later
			if _, err := s[i].Lookup(number(0), nil); err != index.ErrNotFound {
				fatal(t, err)
			}
		}
		body(cluster, p, x, s)
	}))
}

// whileLocked lets the others wait, in their order, while s has the lock of the leaf with the key.
func whileLocked(t *testing.T, p *simenv.Process, s *Session, key []byte, others ...func()) {
	t.Helper()
	g := env.NewWaitGroup(p)
	fatal(t, s.Modify(key, func([]byte, bool) ([]byte, index.Action) {
		for _, f := range others {
			g.Go("waiter", f)
			p.Sleep(100 * time.Microsecond) // until it waits
		}
		return nil, index.Keep
	}))
	g.Wait(env.Forever)
}

// perform does an operation and says what it should answer by the model, which it changes.
func perform(s *Session, m mode, key, value []byte, model map[string]string) (err, want error) {
	_, is := model[string(key)]
	switch {
	case m == insert && is:
		want = index.ErrExists
	case m != insert && m != upsert && !is:
		want = index.ErrNotFound
	case m == remove:
		delete(model, string(key))
	default:
		model[string(key)] = string(value)
	}
	switch m {
	case insert:
		err = s.Insert(key, value)
	case update:
		err = s.Update(key, value)
	case upsert:
		err = s.Upsert(key, value)
	case remove:
		err = s.Delete(key)
	}
	return err, want
}

// TestCombined: what is carried out together is answered, and is, as if it had been done one by one
// in the order of the queue.
func TestCombined(t *testing.T) {
	const waiters = 12
	combined := uint64(0)
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 5))
		// with room for all: else some overtake others
		o := index.Options{Uint64: true, MaxValueBytes: 40, NodeBytes: 4096}
		inTree(t, Config{Options: o, Combine: true}, 1+waiters, func(c *poolsim.Cluster, p *simenv.Process, x *Tree, s []*Session) {
			model := map[string]string{}
			value := func() []byte { return fmt.Appendf(nil, "%*d", 1+r.IntN(o.MaxValueBytes>>r.IntN(3)), r.IntN(10)) }
			for range 8 {
				_, _ = perform(s[0], upsert, number(r.Uint64N(30)), value(), model)
			}
			for range 6 {
				others := make([]func(), waiters)
				keys := 1 + r.Uint64N(9)
				for i := range others {
					m, key, v, w := mode(r.IntN(int(remove)+1)), number(r.Uint64N(keys)), value(), s[1+i]
					others[i] = func() {
						err, want := perform(w, m, key, v, model)
						if !errors.Is(err, want) || want == nil && err != nil {
							t.Errorf("seed %d: operation %d of key %x: %v, want %v", seed, m, key, err, want)
						}
					}
				}
				before := x.Stats().Combined
				whileLocked(t, p, s[0], number(0), others...)
				root, err := s[0].PS.Root()
				fatal(t, err)
				// the first one has carried out all
				all := x.Stats().Combined-before == waiters-1
				if memory := c.Memory(1, verbs.RegionData)[root.Offset():][:o.NodeBytes]; all && !bytes.Equal(s[1].Node, memory) {
					t.Errorf("seed %d: the image that is handed on is not what the memory holds", seed)
				}
				for key, want := range model {
					if got, err := s[0].Lookup([]byte(key), nil); err != nil || string(got) != want {
						t.Errorf("seed %d: key %x is %q, want %q: %v", seed, key, got, want, err)
					}
				}
			}
			found, err := x.Check()
			if err != nil || int(found.Pairs) != len(model) {
				t.Errorf("seed %d: %d pairs, want %d: %v", seed, found.Pairs, len(model), err)
			}
			combined += x.Stats().Combined
		})
	}
	if combined == 0 {
		t.Error("no session has carried out the change of another one")
	}
	t.Logf("%d changes were carried out for others", combined)
}

// TestCombinedCost: all that wait are done in one list, with one WRITE of the entry and one of the
// slot word for each key, and those that did not get the lock post nothing.
func TestCombinedCost(t *testing.T) {
	const waiters, keys = 10, 3
	f := func(what string, c Config, writes, trips uint64) {
		t.Helper()
		c.Options = index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 1024}
		inTree(t, c, 1+waiters, func(_ *poolsim.Cluster, p *simenv.Process, x *Tree, s []*Session) {
			others := make([]func(), waiters)
			for i := range keys {
				fatal(t, s[0].Upsert(number(uint64(i)), number(0)))
			}
			for i := range others {
				others[i] = func() { fatal(t, s[1+i].Upsert(number(uint64(i%keys)), number(uint64(i)))) }
			}
			var before, after verbs.Counters
			for _, w := range s[1:] {
				k := w.Counters()
				before.Sum(&k)
			}
			whileLocked(t, p, s[0], number(0), others...)
			for _, w := range s[1:] {
				k := w.Counters()
				after.Sum(&k)
			}
			d := after.Sub(&before)
			if d.Requests[verbs.Write] != writes || d.RoundTrips != trips {
				t.Errorf("%s: %d WRITEs in %d round trips, want %d in %d", what, d.Requests[verbs.Write], d.RoundTrips, writes, trips)
			}
		})
	}
	// The READ under the lock that is handed over, and the one list.
	f("combined", Config{Combine: true}, 2*keys, 2)
	// The first one READs the leaf under the lock that is handed over; the fifth and the tenth,
	// after four handovers in a row, acquire the lock anew.
	f("one by one", Config{}, 2*waiters, waiters+3)
}

// TestNotCombined: who needs more than one entry in the holder's leaf does it itself: where the
// leaf is full, the key is in another leaf by now, or a value lies in a block.
func TestNotCombined(t *testing.T) {
	long := make([]byte, 30)
	inTree(t, Config{Options: index.Options{Uint64: true, MaxValueBytes: 30, NodeBytes: 256, InlineBytes: 8}, Combine: true}, 8, func(_ *poolsim.Cluster, p *simenv.Process, x *Tree, s []*Session) {
		model := map[string]string{}
		for n := range uint64(4) {
			_, _ = perform(s[0], upsert, number(n), number(n), model)
		}
		_, _ = perform(s[0], upsert, number(4), long, model)
		var others []func()
		add := func(m mode, key uint64, value []byte) {
			w := s[1+len(others)]
			others = append(others, func() {
				if err, want := perform(w, m, number(key), value, model); !errors.Is(err, want) || want == nil && err != nil {
					t.Errorf("operation %d of key %d: %v, want %v", m, key, err, want)
				}
			})
		}
		add(upsert, 1, number(7))
		add(upsert, 4, number(8)) // takes a block out
		add(upsert, 2, long)      // brings one
		add(insert, 20, number(9))
		add(insert, 21, number(9))
		add(insert, 22, number(9))
		add(remove, 3, nil)
		whileLocked(t, p, s[0], number(0), others...)
		for key, want := range model {
			if got, err := s[0].Lookup([]byte(key), nil); err != nil || string(got) != want {
				t.Errorf("key %x is %q, want %q: %v", key, got, want, err)
			}
		}
		if found, err := x.Check(); err != nil || int(found.Pairs) != len(model) {
			t.Errorf("%d pairs, want %d: %v", found.Pairs, len(model), err)
		}
		if n := x.Stats().Combined; n == 0 || n > 6 {
			t.Errorf("%d changes were carried out for others", n)
		}
	})
}

// BenchmarkCombined: sessions change a few keys of one leaf, all at once. They allocate nothing.
func BenchmarkCombined(b *testing.B) {
	const sessions = 16
	c := pooltest.New(b, pooltest.Options{Servers: 1, Chunks: 4, ChunkBytes: 1 << 20})
	x, err := Open(c.Open(b), Config{Options: index.Options{Uint64: true, MaxValueBytes: 8}, Design: index.Design{Name: "test"}, Combine: true})
	fatal(b, err)
	b.ReportAllocs()
	g := env.NewWaitGroup(env.Real())
	var s [sessions]*Session
	for i := range s {
		s[i], err = x.NewSession()
		fatal(b, err)
		fatal(b, s[i].Upsert(number(uint64(i)), number(0)))
	}
	b.ResetTimer()
	for i := range s {
		g.Go("session", func() {
			key, value := number(0), number(uint64(i))
			for n := range b.N / sessions {
				key[7] = byte(n+i) % 8
				if err := s[i].Upsert(key, value); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	g.Wait(env.Forever)
	b.StopTimer()
	b.ReportMetric(float64(x.Stats().Combined)/float64(b.N), "combined/op")
	for i := range s {
		fatal(b, s[i].Close())
	}
	fatal(b, x.Close())
}
