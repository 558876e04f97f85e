package chime_test

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/chime"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestStaleParentCostsAHead: where another client has divided a leaf, a client whose copy of the
// parent is older READs the leaf's head, and not all of the leaf, to learn where to go: in lookups,
// and in changes, which hold the leaf's word then.
func TestStaleParentCostsAHead(t *testing.T) {
	for what, do := range map[string]func(s index.Session, n int) error{
		"lookups": func(s index.Session, n int) error { _, err := s.Lookup(hopKey(n), nil); return err },
		"updates": func(s index.Session, n int) error { return s.Update(hopKey(n), hopKey(n)) },
	} {
		w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 10_000_000})
		c, err := poolsim.New(w, poolsim.Options{Servers: 1})
		fatal(t, err)
		fatal(t, w.Run(func(p *simenv.Process) { staleParent(t, c, p, what, do) }))
	}
}

func staleParent(t *testing.T, c *poolsim.Cluster, p *simenv.Process, what string, do func(s index.Session, n int) error) {
	t.Helper()
	const keys = 12_000
	var x [2]index.Index
	var s [2]index.Session
	for i := range x {
		cl, err := c.Open(p)
		fatal(t, err)
		x[i], err = chime.Open(cl, index.Options{Uint64: true, MaxValueBytes: 8, Switches: map[string]bool{"speculativeRead": false}})
		fatal(t, err)
		s[i], err = x[i].Session()
		fatal(t, err)
	}
	for n := range keys {
		fatal(t, s[0].Insert(hopKey(n), hopKey(n)))
		if n == keys/2 {
			for n := range keys / 2 { // its copies are of this time
				fatal(t, do(s[1], n))
			}
		}
	}
	// what operations READ that READ more than a neighbourhood: inner nodes anew; neighbourhoods
	// and heads
	const inner, most = 2240, 290 + 330 + 80
	cold, stale, bytes := x[1].Stats().CacheMisses, uint64(0), uint64(0)
	for n := range keys {
		was := s[1].Counters()
		fatal(t, do(s[1], n))
		is := s[1].Counters()
		if d := is.Sub(&was); d.Bytes[verbs.Read] > 2*290 {
			stale++
			bytes += d.Bytes[verbs.Read]
		}
	}
	fatal(t, s[1].Close()) // its counts are exact then
	bytes -= inner * (x[1].Stats().CacheMisses - cold)
	if t.Logf("%s: %d operations READ more than a neighbourhood, %d bytes besides inner nodes", what, stale, bytes); stale < 3 {
		t.Errorf("%s: that proves nothing", what)
	}
	if bytes > stale*most {
		t.Errorf("%s: at most %d bytes each would do", what, most)
	}
}
