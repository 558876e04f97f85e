package indextest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Cost is a ceiling on what one operation posts, on average over many.
type Cost struct {
	RoundTrips float64
	Requests   [verbs.NumOps]float64 // an atomic of any kind counts as CompareSwap
	Bytes      float64
}

// Costs are the ceilings of a design with 8-byte keys and values, inner nodes cached and nobody
// else at work.
type Costs struct {
	Lookup, Miss, Update, Scan100 Cost
	// of a key that is there, by Modify; zero = as an update
	Modify         Cost
	Delete, Insert Cost // of one key, in turn, so that the structure hardly changes
	Shrink         Cost // a delete, where half of all keys go and nodes are merged

	// of values of LongValue bytes, which do not lie beside their keys
	LongLookup, LongUpdate, LongScan20 Cost
}

// LongValue is how long those are.
const LongValue = 1000

// longCost counts what long values take.
func (r *runner) longCost(t *testing.T) {
	random := seeded(t)
	c := r.cluster(t, 32)
	x := r.open(t, c.Open(t), index.Options{Uint64: true, MaxValueBytes: LongValue})
	s := session(t, x)
	const n = 2000
	key := func(i int) []byte { return number(uint64(i) * 0x9E3779B97F4A7C15) }
	value := bytes.Repeat([]byte{'v'}, LongValue)
	order := random.Perm(n)
	for range 2 { // what leaves have that others split off lies on other servers the first time
		for _, i := range order {
			must(t, s.Upsert(key(i), value))
		}
	}
	inner := largestInner(t, x)
	run := func(what string, most Cost, times int, do func(i int) error) {
		t.Helper()
		cold := coldIn(x, s, key(0), inner)
		before := s.Counters()
		for i := range times {
			if err := do(order[i]); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		d := s.Counters()
		d = d.Sub(&before)
		if err := cold(most, times).holds(&d, times); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	run("lookup of a long value", r.Costs.LongLookup, n, func(i int) error { _, err := s.Lookup(key(i), nil); return err })
	run("update with a long value", r.Costs.LongUpdate, n, func(i int) error { return s.Update(key(i), value) })
	put := func([]byte, bool) ([]byte, index.Action) { return value, index.Put }
	run("modification of a long value", modifyCosts(r.Costs.LongUpdate), n, func(i int) error { return s.Modify(key(i), put) })
	run("scan of 20 long values", r.Costs.LongScan20, n/20, func(i int) error {
		return s.Scan(key(i), 20, false, func(_, _ []byte) bool { return true })
	})
}

// shownAfter is after how many operations of a session others see at least what it counted.
const shownAfter = 64

// largestInner is the size of the largest inner node.
func largestInner(t testing.TB, x index.Index) (bytes int) {
	t.Helper()
	for _, p := range check(t, x).Memory {
		if p.Kind == index.KindInner {
			bytes = max(bytes, p.Bytes)
		}
	}
	return bytes
}

// coldIn begins to count inner nodes that are READ. What it returns adds them to a ceiling: while
// memory comes back, copies of inner nodes grow too old from time to time, however few operations
// there are until then. Others see what s counts only now and then: so s looks key up a few times
// before each count. What that takes is not to be counted.
func coldIn(x index.Index, s index.Session, key []byte, innerBytes int) func(most Cost, times int) *Cost {
	misses := func() uint64 {
		for range shownAfter {
			_, _ = s.Lookup(key, nil)
		}
		return x.Stats().CacheMisses
	}
	before := misses()
	return func(most Cost, times int) *Cost {
		cold := float64(misses()-before) / float64(times)
		most.RoundTrips += cold
		most.Requests[verbs.Read] += cold
		most.Bytes += cold * float64(innerBytes)
		return &most
	}
}

// cost counts at the fabric what operations take.
func (r *runner) cost(t *testing.T) {
	random := seeded(t)
	c := r.cluster(t, 32)
	o := index.Options{Uint64: true, MaxValueBytes: 8}
	x := r.open(t, c.Open(t), o)
	s := session(t, x)
	const n = 8000
	key := func(i int) []byte { return number(uint64(i) * 0x9E3779B97F4A7C15 &^ 1) } // even, spread
	value := number(1)
	order := random.Perm(n)
	for _, i := range order {
		must(t, s.Insert(key(i), value))
	}
	inner := largestInner(t, x)
	odd := func(i int) []byte { k := key(i); k[7] |= 1; return k }
	run := func(what string, most Cost, times int, do func(i int) error) {
		t.Helper()
		cold := coldIn(x, s, key(0), inner)
		before := s.Counters()
		for i := range times {
			if err := do(order[i]); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		d := s.Counters()
		d = d.Sub(&before)
		if err := cold(most, times).holds(&d, times); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	run("lookup", r.Costs.Lookup, n, func(i int) error { _, err := s.Lookup(key(i), nil); return err })
	batch := make([][]byte, 0, batchOf)
	visit := func(int, []byte, error) {}
	run("lookup in a batch", inBatch(r.Costs.Lookup), n, func(i int) error {
		if batch = append(batch, key(i)); len(batch) < batchOf {
			return nil
		}
		defer func() { batch = batch[:0] }()
		return s.LookupBatch(batch, visit)
	})
	run("miss", r.Costs.Miss, n, func(i int) error {
		if _, err := s.Lookup(odd(i), nil); err != index.ErrNotFound {
			return fmt.Errorf("lookup: %w", err)
		}
		return nil
	})
	run("update", r.Costs.Update, n, func(i int) error { return s.Update(key(i), value) })
	values := slices.Repeat([][]byte{value}, batchOf)
	s.Defer(true)
	run("update that was prepared", r.Costs.Update, n, func(i int) error {
		if batch = append(batch, key(i)); len(batch) < batchOf {
			return nil
		}
		defer func() { batch = batch[:0] }()
		err := s.Prepare(batch, values)
		for _, key := range batch {
			err = errors.Join(err, s.Update(key, value))
		}
		return errors.Join(err, s.Durable(s.Position()))
	})
	s.Defer(false)
	action := index.Put
	change := func([]byte, bool) ([]byte, index.Action) { return value, action }
	modify := r.Costs.Modify
	if modify.RoundTrips == 0 {
		modify = r.Costs.Update
	}
	run("modification", modify, n, func(i int) error { return s.Modify(key(i), change) })
	action = index.Keep
	run("modification that keeps", modify, n, func(i int) error { return s.Modify(key(i), change) })
	run("scan of 100", r.Costs.Scan100, n/20, func(i int) error {
		return s.Scan(key(i), 100, false, func(_, _ []byte) bool { return true })
	})
	// Up to here nodes only came to be. From here on they are merged.
	cold := coldIn(x, s, key(0), inner)
	var deletes, inserts verbs.Counters
	for _, i := range order[:n/2] {
		start := s.Counters()
		must(t, s.Delete(key(i)))
		between := s.Counters()
		must(t, s.Insert(key(i), value))
		end := s.Counters()
		end, between = end.Sub(&between), between.Sub(&start)
		deletes.Sum(&between)
		inserts.Sum(&end)
	}
	if err := cold(r.Costs.Delete, n/2).holds(&deletes, n/2); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := cold(r.Costs.Insert, n/2).holds(&inserts, n/2); err != nil {
		t.Errorf("insert: %v", err)
	}
	cold = coldIn(x, s, key(0), inner)
	before := s.Counters()
	for _, i := range order[:n/2] {
		must(t, s.Delete(key(i)))
	}
	d := s.Counters()
	d = d.Sub(&before)
	if err := cold(r.Costs.Shrink, n/2).holds(&d, n/2); err != nil {
		t.Errorf("delete of half: %v", err)
	}
}

// batchOf is how many keys the batches have whose costs are counted.
const batchOf = 16

// inBatch is what a lookup may take in a batch: the same requests, in a few round trips for all.
func inBatch(lookup Cost) Cost {
	lookup.RoundTrips /= batchOf / 4
	return lookup
}

// holds compares a sum over many operations with the ceiling of one.
func (m *Cost) holds(d *verbs.Counters, times int) error {
	one := func(n uint64) float64 { return float64(n) / float64(times) }
	var bytes uint64
	for _, b := range d.Bytes {
		bytes += b
	}
	switch {
	case one(d.RoundTrips) > m.RoundTrips:
		return fmt.Errorf("%.3f round trips, at most %.3f", one(d.RoundTrips), m.RoundTrips)
	case one(d.Requests[verbs.Read]) > m.Requests[verbs.Read]:
		return fmt.Errorf("%.3f READs, at most %.3f", one(d.Requests[verbs.Read]), m.Requests[verbs.Read])
	case one(d.Requests[verbs.Write]) > m.Requests[verbs.Write]:
		return fmt.Errorf("%.3f WRITEs, at most %.3f", one(d.Requests[verbs.Write]), m.Requests[verbs.Write])
	case one(d.Atomics()) > m.Requests[verbs.CompareSwap]:
		return fmt.Errorf("%.3f atomics, at most %.3f", one(d.Atomics()), m.Requests[verbs.CompareSwap])
	case one(bytes) > m.Bytes:
		return fmt.Errorf("%.0f bytes, at most %.0f", one(bytes), m.Bytes)
	}
	return nil
}
