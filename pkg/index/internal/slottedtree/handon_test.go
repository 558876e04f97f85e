package slottedtree

import (
	"bytes"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestWhoHandsItsLeafOn: who waits for the lock of a leaf READs it after everything but a change of
// one entry in place.
func TestWhoHandsItsLeafOn(t *testing.T) {
	const preloaded = 4 // of the keys that the leaf has room for
	value := make([]byte, 8)
	f := func(what string, cache btree.LeafCache, long uint64, answer []byte, action index.Action, reads uint64) {
		t.Helper()
		w := simenv.New(simenv.Options{Seed: 1})
		c, err := poolsim.New(w, poolsim.Options{Servers: 1})
		fatal(t, err)
		fatal(t, w.Run(func(p *simenv.Process) {
			cl, err := c.Open(p)
			fatal(t, err)
			x, err := Open(cl, Config{Options: index.Options{Uint64: true, MaxValueBytes: 64, NodeBytes: 512}, Design: index.Design{Name: "test"}, Cache: cache})
			fatal(t, err)
			var s [2]*Session
			for i := range s {
				s[i], err = x.NewSession()
				fatal(t, err)
			}
			for n := range uint64(preloaded) {
				fatal(t, s[0].Upsert(number(n), value))
			}
			for n := range long {
				fatal(t, s[0].Upsert(number(preloaded+n), make([]byte, 64)))
			}
			fatal(t, s[1].Upsert(number(1), value))
			before, g := s[1].Counters(), env.NewWaitGroup(p)
			fatal(t, s[0].Modify(number(2), func([]byte, bool) ([]byte, index.Action) {
				g.Go("waiter", func() { fatal(t, s[1].Upsert(number(0), []byte("new"))) })
				p.Sleep(100 * time.Microsecond) // until it waits
				return answer, action
			}))
			g.Wait(env.Forever)
			after := s[1].Counters()
			if got := after.Sub(&before).Requests[verbs.Read]; got != reads {
				t.Errorf("%s: %d READs by who waited, want %d", what, got, reads)
			}
			for n, want := range [][]byte{[]byte("new"), value, {}} {
				if n == 2 {
					if want = value; action == index.Put {
						want = answer
					}
				}
				got, err := s[0].Lookup(number(uint64(n)), nil)
				if action == index.Remove && n == 2 {
					if err != index.ErrNotFound {
						t.Errorf("%s: the key that was removed has %x: %v", what, got, err)
					}
				} else if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s: key %d has %x, want %x: %v", what, n, got, want, err)
				}
			}
		}))
	}
	f("an entry in place", nil, 0, []byte("other"), index.Put, 0)
	f("an entry taken out", nil, 0, nil, index.Remove, 0)
	f("no change", nil, 0, nil, index.Keep, 1)
	f("a leaf that is divided", nil, 4, bytes.Repeat([]byte{7}, 64), index.Put, 1)
	f("a design that keeps leaves", struct{ btree.LeafCache }{}, 0, []byte("other"), index.Put, 1)
}
