package slottedtree

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/index/internal/combine/combinetest"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// inTree runs body in a calm world, with a tree of which n sessions are open.
func inTree(t *testing.T, c Config, n int, body func(w *combinetest.World)) {
	t.Helper()
	c.Design = index.Design{Name: "test"}
	open := func(p *pool.Pool) (index.Index, error) { return Open(p, c) }
	combinetest.Run(t, poolsim.Options{}, open, n, func(w *combinetest.World) {
		for _, s := range w.S {
			// its descent is from the cache later
			if _, err := s.Lookup(number(0), nil); err != index.ErrNotFound {
				fatal(t, err)
			}
		}
		body(w)
	})
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
		inTree(t, Config{Options: o, Combine: true}, 1+waiters, func(w *combinetest.World) {
			w.What = fmt.Sprint("seed ", seed)
			value := func() []byte { return fmt.Appendf(nil, "%*d", 1+r.IntN(o.MaxValueBytes>>r.IntN(3)), r.IntN(10)) }
			for range 8 {
				w.Do(0, combine.Upsert, number(r.Uint64N(30)), value())
			}
			for range 6 {
				keys := 1 + r.Uint64N(9)
				var others []combinetest.Operation
				for range waiters {
					others = append(others, combinetest.Operation{Mode: combine.Mode(r.IntN(int(combine.Delete) + 1)), Key: number(r.Uint64N(keys)), Value: value()})
				}
				before := w.Index.Stats().Combined
				w.Together(number(0), others)
				s := w.S[1].(*Session)
				root, err := s.PS.Root()
				fatal(t, err)
				// the first one has carried out all
				all := w.Index.Stats().Combined-before == waiters-1
				if memory := w.Cluster.Memory(1, verbs.RegionData)[root.Offset():][:o.NodeBytes]; all && !bytes.Equal(s.Node, memory) {
					t.Errorf("%s: the image that is handed on is not what the memory holds", w.What)
				}
				w.Compare()
			}
			combined += w.Index.Stats().Combined
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
		inTree(t, c, 1+waiters, func(w *combinetest.World) {
			w.What = what
			for i := range uint64(keys) {
				w.Do(0, combine.Upsert, number(i), number(0))
			}
			var others []combinetest.Operation
			for i := range uint64(waiters) {
				others = append(others, combinetest.Operation{Mode: combine.Upsert, Key: number(i % keys), Value: number(i)})
			}
			d := w.Counted(1, func() { w.Together(number(0), others) })
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
	inTree(t, Config{Options: index.Options{Uint64: true, MaxValueBytes: 30, NodeBytes: 256, InlineBytes: 8}, Combine: true}, 8, func(w *combinetest.World) {
		for n := range uint64(4) {
			w.Do(0, combine.Upsert, number(n), number(n))
		}
		w.Do(0, combine.Upsert, number(4), long)
		w.Together(number(0), []combinetest.Operation{
			{Mode: combine.Upsert, Key: number(1), Value: number(7)},
			{Mode: combine.Upsert, Key: number(4), Value: number(8)}, // takes a block out
			{Mode: combine.Upsert, Key: number(2), Value: long},      // brings one
			{Mode: combine.Insert, Key: number(20), Value: number(9)},
			{Mode: combine.Insert, Key: number(21), Value: number(9)},
			{Mode: combine.Insert, Key: number(22), Value: number(9)},
			{Mode: combine.Delete, Key: number(3)},
		})
		w.Compare()
		if n := w.Index.Stats().Combined; n == 0 || n > 6 {
			t.Errorf("%d changes were carried out for others", n)
		}
	})
}

// TestCombinedOnThreads: see combinetest.OnThreads.
func TestCombinedOnThreads(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Servers: 1, Chunks: 8, ChunkBytes: 1 << 20})
	x, err := Open(c.Open(t), Config{Options: index.Options{Uint64: true, MaxValueBytes: 24, NodeBytes: 512, InlineBytes: 20}, Design: index.Design{Name: "test"}, Combine: true})
	fatal(t, err)
	combinetest.OnThreads(t, x, 2500, func(n int) []byte { return number(uint64(n)) })
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
