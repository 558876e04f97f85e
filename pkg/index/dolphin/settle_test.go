package dolphin

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestLookupBesideWritesNeedsNoSlot: a lookup that finds a cell within a WRITE again and again
// waits for it, also where no intent slot is left. The lock word of a leaf lies in a strip, and
// needs none.
func TestLookupBesideWritesNeedsNoSlot(t *testing.T) {
	w := simenv.New(simenv.Options{Seed: 1})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 64, Intents: 1})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	must(w.Run(func(p *simenv.Process) {
		other, err := c.Open(p)
		must(err)
		takes, err := other.NewSession(64) // the only slot
		must(err)
		node, err := other.Allocate(256, pool.Nil)
		must(err)
		takes.Begin()
		_, err = takes.Acquire(pool.Word{At: node + 248, Node: node})
		must(err)
		must(takes.PostRelease(0, 0))
		takes.End()

		own, err := c.Open(p)
		must(err)
		x, err := open(own, index.Options{Uint64: true, MaxValueBytes: 40, NodeBytes: 512})
		must(err)
		s, err := x.newSession()
		must(err)
		key := make([]byte, 8)
		must(s.Insert(key, []byte("a value")))
		s.Begin()
		_, err = s.find(key, false)
		must(err)
		f, _ := s.leaf.find(key, s.lay.tagOf(key))
		at := s.leaf.at + pool.Addr(s.leaf.cellAt(f.cursor, f.w)+cellHead)
		s.End()
		word := c.Memory(at.Server(), verbs.RegionData)[at.Offset():]
		word[0]++ // a WRITE of the cell is under way
		w.After(time.Millisecond, nil, func() { word[0]-- })
		if v, err := s.Lookup(key, nil); err != nil || string(v) != "a value" {
			t.Errorf("%q, %v", v, err)
		}
	}))
}
