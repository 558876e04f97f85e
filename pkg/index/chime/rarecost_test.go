package chime_test

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/chime"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestWithoutMaskedAtomics: where there are no masked atomics, a change takes one round trip more
// at most, for the word's own bits; and a lookup none.
func TestWithoutMaskedAtomics(t *testing.T) {
	const pairs = 200
	operations := []struct {
		name string
		do   func(s index.Session, n int) error
	}{
		{"lookup", func(s index.Session, n int) error { _, err := s.Lookup(hopKey(n), nil); return err }},
		{"update", func(s index.Session, n int) error { return s.Update(hopKey(n), []byte("1")) }},
		{"delete", func(s index.Session, n int) error { return s.Delete(hopKey(n)) }},
		{"insert", func(s index.Session, n int) error { return s.Insert(hopKey(n), []byte("2")) }},
	}
	var trips [2][]float64
	for i, masked := range []bool{true, false} {
		w := simenv.New(simenv.Options{Seed: 1})
		c, err := poolsim.New(w, poolsim.Options{Servers: 1, Fabric: sim.Options{Capabilities: verbs.Capabilities{MaskedAtomics: masked, WholeWrite: verbs.MaxTransfer, WholeAlways: true}}})
		fatal(t, err)
		fatal(t, w.Run(func(p *simenv.Process) {
			cl, err := c.Open(p)
			fatal(t, err)
			x, err := chime.Open(cl, small)
			fatal(t, err)
			s, err := x.Session()
			fatal(t, err)
			for n := range pairs {
				fatal(t, s.Insert(hopKey(n), []byte("0")))
			}
			for _, op := range operations {
				before := s.Counters()
				for n := range pairs {
					fatal(t, op.do(s, n))
				}
				d := s.Counters()
				d = d.Sub(&before)
				trips[i] = append(trips[i], float64(d.RoundTrips)/pairs)
			}
		}))
	}
	for i, op := range operations {
		with, without := trips[0][i], trips[1][i]
		t.Logf("%s: %.2f round trips with masked atomics, %.2f without", op.name, with, without)
		most := with + 1.02
		if op.name == "lookup" {
			most = with
		}
		if without > most {
			t.Errorf("%s: %.2f round trips with masked atomics, %.2f without", op.name, with, without)
		}
	}
}

// TestWrongSpeculationCostsOneRead: a client knows in which slot a hot key lies, and another one
// deleted it. The lookup READs the slot in vain, and then what any lookup READs.
func TestWrongSpeculationCostsOneRead(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Provider: "shm", Chunks: 8})
	_, s := open(t, c, small)
	y, hot := open(t, c, small)
	const n = 40 // in one leaf
	for i := range uint64(n) {
		must(t, s.Insert(number(i), number(i)))
	}
	lookup := func(key uint64, want []byte) (trips, reads uint64) {
		t.Helper()
		before := hot.Counters()
		wantValue(t, hot, number(key), want)
		d := hot.Counters()
		d = d.Sub(&before)
		return d.RoundTrips, d.Requests[verbs.Read]
	}
	wrong := 0
	for i := range uint64(n) {
		lookup(i, number(i))
		_, before := chime.Speculations(y)
		if trips, reads := lookup(i, number(i)); trips != 1 || reads != 1 {
			t.Errorf("key %d, whose slot is known, takes %d READs in %d round trips", i, reads, trips)
		}
		if _, right := chime.Speculations(y); right == before {
			continue // another key of its fingerprint took its place
		}
		must(t, s.Delete(number(i)))
		wrong++
		// The leaf is the last one, so its head is READ, too.
		if trips, reads := lookup(i, nil); trips != 2 || reads > 1+3 {
			t.Errorf("key %d, which is not where it was: %d READs in %d round trips", i, reads, trips)
		}
	}
	if wrong < n/2 {
		t.Errorf("%d of %d keys were known", wrong, n)
	}
}
