package chime_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/chime"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/index/internal/combine/combinetest"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inWorld runs body in a calm world, with an index of which n sessions are open.
func inWorld(t *testing.T, o index.Options, whole, n int, body func(w *combinetest.World)) {
	t.Helper()
	fabric := sim.Options{Capabilities: verbs.Capabilities{MaskedAtomics: true, WholeWrite: whole, WholeAlways: true}}
	open := func(p *pool.Pool) (index.Index, error) { return chime.Open(p, o) }
	combinetest.Run(t, poolsim.Options{Fabric: fabric}, open, n, func(w *combinetest.World) {
		for i := range w.S {
			// its descent is from the cache later, and it has its intent slot
			w.Do(i, combine.Upsert, hopKey(0), []byte("0"))
		}
		body(w)
	})
}

// TestCombinedDeletesOfManySlots: the lock word of a leaf of a thousand slots does not say how many
// pairs it has. Deletes that one session makes together look for no neighbour to merge it with.
func TestCombinedDeletesOfManySlots(t *testing.T) {
	const waiters, pairs = 8, 4000
	o := index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 32 << 10}
	inWorld(t, o, 0, 1+waiters, func(w *combinetest.World) {
		for n := range pairs {
			w.Do(0, combine.Upsert, hopKey(n), []byte("0"))
		}
		var others []combinetest.Operation
		for i := range waiters {
			o := combinetest.Operation{Mode: combine.Delete, Key: hopKey(0), Value: []byte("1")}
			if i%2 == 1 {
				o.Mode = combine.Insert
			}
			others = append(others, o)
		}
		d := w.Counted(0, func() { w.Together(hopKey(0), others) })
		if n := d.Bytes[verbs.Read]; n > uint64(o.NodeBytes) {
			t.Errorf("%d bytes were READ: more than the leaf has", n)
		}
		if n := w.Index.Stats().Combined; n < waiters/2 {
			t.Errorf("%d changes were carried out for others", n)
		}
	})
}

// TestCombined: what is carried out together is answered, and is, as if it had been done one by one
// in the order of the queue. It is so where the WRITE of a slot is whole, and where it is a
// Rewrite: then a list changes one entry that is there, and others go back to the queue, where
// changes of other keys overtake them. So there each waiter has keys of its own.
func TestCombined(t *testing.T) {
	const waiters = 12
	f := func(what string, whole int, keysOf func(r *rand.Rand, waiter int) int) {
		combined := uint64(0)
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, 5))
			inWorld(t, index.Options{Uint64: true, MaxValueBytes: 40}, whole, 1+waiters, func(w *combinetest.World) {
				w.What = fmt.Sprintf("%s, seed %d", what, seed)
				value := func() []byte { return fmt.Appendf(nil, "%*d", 1+r.IntN(40>>r.IntN(3)), r.IntN(10)) }
				for range 8 {
					w.Do(0, combine.Upsert, hopKey(r.IntN(30)), value())
				}
				for range 6 {
					var others []combinetest.Operation
					for i := range waiters {
						others = append(others, combinetest.Operation{Mode: combine.Mode(r.IntN(int(combine.Delete) + 1)), Key: hopKey(keysOf(r, i)), Value: value()})
					}
					w.Together(hopKey(0), others)
					w.Compare()
				}
				combined += w.Index.Stats().Combined
			})
		}
		if combined < 500 {
			t.Errorf("%s: sessions carried out %d changes of others", what, combined)
		}
		t.Logf("%s: %d changes were carried out for others", what, combined)
	}
	f("whole WRITEs", 1024, func(r *rand.Rand, _ int) int { return r.IntN(9) })
	f("one key", 1024, func(*rand.Rand, int) int { return 0 })
	f("Rewrites", 8, func(r *rand.Rand, waiter int) int { return r.IntN(3)*waiters + waiter })
	f("Rewrites of one key", 8, func(*rand.Rand, int) int { return 0 })
}

// TestCombinedCost: all that wait are done in one list, with one WRITE for each key, and those that
// did not get the word post nothing.
func TestCombinedCost(t *testing.T) {
	const waiters = 10
	f := func(what string, keys int, on bool, writes, trips uint64) {
		t.Helper()
		o := index.Options{Uint64: true, MaxValueBytes: 8, Switches: map[string]bool{"writeCombining": on}}
		inWorld(t, o, 1024, 1+waiters, func(w *combinetest.World) {
			w.What = what
			for i := range keys {
				w.Do(0, combine.Upsert, hopKey(i), hopKey(0))
			}
			var others []combinetest.Operation
			for i := range waiters {
				others = append(others, combinetest.Operation{Mode: combine.Upsert, Key: hopKey(i % keys), Value: hopKey(i)})
			}
			d := w.Counted(1, func() { w.Together(hopKey(0), others) })
			if d.Requests[verbs.Write] != writes || d.RoundTrips != trips {
				t.Errorf("%s: %d WRITEs in %d round trips, want %d in %d", what, d.Requests[verbs.Write], d.RoundTrips, writes, trips)
			}
		})
	}
	// Each key has a WRITE of a slot. Of one key nothing more is READ than its neighbourhood.
	f("one key", 1, true, 1, 2)
	f("three keys", 3, true, 3, 3)
	f("one by one", 3, false, waiters, 2*waiters)
}

// TestNotCombined: who needs more than one slot of the holder's leaf does it itself: where the
// neighbourhood is full, the key is in another leaf by now, or a value lies in a block.
func TestNotCombined(t *testing.T) {
	long := make([]byte, 300)
	o := index.Options{Uint64: true, MaxValueBytes: 300, NodeBytes: 512}
	inWorld(t, o, 1024, 13, func(w *combinetest.World) {
		for n := range 4 {
			w.Do(0, combine.Upsert, hopKey(n), hopKey(n))
		}
		w.Do(0, combine.Upsert, hopKey(4), long)
		others := []combinetest.Operation{
			{Mode: combine.Upsert, Key: hopKey(1), Value: hopKey(7)},
			{Mode: combine.Upsert, Key: hopKey(4), Value: hopKey(8)}, // takes a block out
			{Mode: combine.Upsert, Key: hopKey(2), Value: long},      // brings one
		}
		for n := range 8 { // the leaf is divided
			others = append(others, combinetest.Operation{Mode: combine.Insert, Key: hopKey(20 + n), Value: hopKey(9)})
		}
		w.Together(hopKey(0), append(others, combinetest.Operation{Mode: combine.Delete, Key: hopKey(3)}))
		w.Compare()
		if n := w.Index.Stats().Combined; n == 0 || n > 9 {
			t.Errorf("%d changes were carried out for others", n)
		}
	})
}

// TestCombinedOnThreads: see combinetest.OnThreads.
func TestCombinedOnThreads(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Servers: 1, Chunks: 8, ChunkBytes: 1 << 20})
	x, err := chime.Open(c.Open(t), index.Options{Uint64: true, MaxValueBytes: 24, NodeBytes: 512})
	fatal(t, err)
	combinetest.OnThreads(t, x, 1200, hopKey)
}
