package dolphin_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dolphin"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/index/internal/combine/combinetest"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

func numbered(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// combines is a form of leaves, and how their values change.
type combines struct {
	what  string
	value int  // bytes at most
	whole bool // a WRITE of a cell takes effect as a whole
	off   string
}

// inWorld runs body in a calm world, with an index of leaves of so many bytes, of which n sessions
// are open. Session 0 has inserted key 0.
func (c *combines) inWorld(t *testing.T, leaf, n int, body func(w *combinetest.World)) {
	t.Helper()
	o := index.Options{Uint64: true, MaxValueBytes: c.value, NodeBytes: leaf}
	if c.off != "" {
		o.Switches = map[string]bool{c.off: false}
	}
	fabric := sim.Options{Capabilities: verbs.Capabilities{MaskedAtomics: true, WholeWrite: 8}}
	if c.whole {
		fabric.Capabilities.WholeWrite, fabric.Capabilities.WholeAlways = 1024, true
	}
	open := func(p *pool.Pool) (index.Index, error) { return dolphin.Open(p, o) }
	combinetest.Run(t, poolsim.Options{Fabric: fabric}, open, n, func(w *combinetest.World) {
		w.What = c.what
		for i := range w.S { // its descent is from the cache later, and it has its intent slot
			w.Do(i, combine.Upsert, numbered(0), []byte("0"))
		}
		body(w)
	})
}

// TestCombined: what is carried out together is answered, and is, as if it had been done one by one
// in the order of the queue.
func TestCombined(t *testing.T) {
	const waiters = 12
	for _, c := range []combines{
		{what: "words", value: 8},
		{what: "words, changed under the lock word", value: 8, off: "ternaryLock"},
		{what: "cells that are changed", value: 40, whole: true},
		{what: "cells that are not", value: 40},
	} {
		combined := uint64(0)
		for seed := range uint64(4) {
			r := rand.New(rand.NewPCG(seed, 5))
			c.inWorld(t, 16<<10, 1+waiters, func(w *combinetest.World) {
				w.What = fmt.Sprintf("%s, seed %d", c.what, seed)
				value := func() []byte { return fmt.Appendf(nil, "%*d", 1+r.IntN(c.value>>r.IntN(3)), r.IntN(10)) }
				for range 8 {
					w.Do(0, combine.Upsert, numbered(r.IntN(12)), value())
				}
				for range 6 {
					var others []combinetest.Operation
					for range waiters {
						others = append(others, combinetest.Operation{Mode: combine.Mode(r.IntN(int(combine.Delete) + 1)), Key: numbered(r.IntN(9)), Value: value()})
					}
					w.Do(0, combine.Upsert, numbered(0), value())
					w.Together(numbered(0), others)
					w.Compare()
				}
				combined += w.Index.Stats().Combined
			})
		}
		if combined < 200 {
			t.Errorf("%s: sessions carried out %d changes of others", c.what, combined)
		}
		t.Logf("%s: %d changes were carried out for others", c.what, combined)
	}
}

// TestCombinedCost: all that wait are done in one list, with one WRITE for each key that is there,
// and one for all that are new, or two if values are words. Those that did not get the lock word
// post nothing.
func TestCombinedCost(t *testing.T) {
	const waiters = 10
	f := func(c combines, keys int, m combine.Mode, writes, trips uint64) {
		t.Helper()
		c.inWorld(t, 4<<10, 1+waiters, func(w *combinetest.World) {
			var others []combinetest.Operation
			for i := range waiters {
				key := numbered(i % keys)
				if m == combine.Insert {
					key = numbered(1 + i)
				} else if i < keys {
					w.Do(0, combine.Upsert, key, numbered(0))
				}
				others = append(others, combinetest.Operation{Mode: m, Key: key, Value: numbered(i)})
			}
			d := w.Counted(1, func() { w.Together(numbered(0), others) })
			if d.Requests[verbs.Write] != writes || d.RoundTrips != trips {
				t.Errorf("%s: %d WRITEs in %d round trips, want %d in %d", c.what, d.Requests[verbs.Write], d.RoundTrips, writes, trips)
			}
			w.Compare()
		})
	}
	cells := combines{what: "cells", value: 24, whole: true}
	f(cells, 1, combine.Update, 1, 2)
	f(cells, 3, combine.Update, 3, 2)
	f(cells, 3, combine.Insert, 1, 2)
	f(combines{what: "cells, one by one", value: 24, whole: true, off: "writeCombining"}, 3, combine.Update, waiters, 2*waiters)
	f(combines{what: "cells that are not changed", value: 24}, 1, combine.Update, 3, 2)
	f(combines{what: "words", value: 8}, 1, combine.Insert, 2, 2)
	f(combines{what: "words under the lock word", value: 8, off: "ternaryLock"}, 3, combine.Update, 3, 2)
}

// TestNotCombined: changes that need more than the holder's leaf are made by their own sessions:
// the leaf is full, the key is in another one by now, or a value lies in a block.
func TestNotCombined(t *testing.T) {
	c := combines{what: "full leaves", value: 300, whole: true}
	long := make([]byte, 300)
	c.inWorld(t, 512, 14, func(w *combinetest.World) {
		for n := range 3 {
			w.Do(0, combine.Upsert, numbered(n), numbered(n))
		}
		w.Do(0, combine.Upsert, numbered(3), long)
		w.Together(numbered(0), []combinetest.Operation{
			{Mode: combine.Upsert, Key: numbered(1), Value: numbered(7)},
			{Mode: combine.Upsert, Key: numbered(3), Value: numbered(8)}, // takes a block out
			{Mode: combine.Upsert, Key: numbered(2), Value: long},        // brings one
		})
		w.Compare()
		if n := w.Index.Stats().Combined; n != 0 {
			t.Errorf("%d changes with blocks were carried out for others", n)
		}
		var others []combinetest.Operation
		for n := range 9 { // the leaf is divided
			others = append(others, combinetest.Operation{Mode: combine.Insert, Key: numbered(20 + n), Value: make([]byte, 40)})
		}
		w.Together(numbered(0), append(others, combinetest.Operation{Mode: combine.Delete, Key: numbered(0)}))
		w.Compare()
		if n := w.Index.Stats().Combined; n == 0 || n > 10 {
			t.Errorf("%d changes were carried out for others", n)
		}
	})
}

// TestCombinedDeletes: whoever makes the deletes of others merges the leaf that they leave empty,
// and its memory comes back.
func TestCombinedDeletes(t *testing.T) {
	const waiters = 12
	c := combines{what: "deletes", value: 40, whole: true}
	c.inWorld(t, 1<<10, 1+waiters, func(w *combinetest.World) {
		for n := range 200 {
			w.Do(0, combine.Upsert, numbered(n), make([]byte, 40))
		}
		for n := 0; n+waiters < 200; n += waiters {
			var others []combinetest.Operation
			for i := range waiters {
				others = append(others, combinetest.Operation{Mode: combine.Delete, Key: numbered(n + i)})
			}
			w.Together(numbered(n), others)
		}
		w.Compare()
		if n := w.Index.Stats().Merges; n < 5 {
			t.Errorf("%d merges", n)
		}
		if n := w.Index.Stats().Combined; n < 80 {
			t.Errorf("%d changes were carried out for others", n)
		}
	})
}

// TestCombinedOnThreads: see combinetest.OnThreads.
func TestCombinedOnThreads(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Servers: 1, Chunks: 8, ChunkBytes: 1 << 20})
	x, err := dolphin.Open(c.Open(t), index.Options{Uint64: true, MaxValueBytes: 24, NodeBytes: 512})
	if err != nil {
		t.Fatal(err)
	}
	combinetest.OnThreads(t, x, 1200, numbered)
}
