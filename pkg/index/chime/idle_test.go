package chime_test

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/combine/combinetest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestIdleSlotsAreClaimedAgain: what an update costs above its two round trips. Where the WRITE of
// a slot can be cut short it needs an intent slot. The session's is given back when nobody has used
// it for a while (pool, idleslot.go), and the next update claims one: READ of slots, and a
// compare-and-swap. Nothing else of an update does.
func TestIdleSlotsAreClaimedAgain(t *testing.T) {
	o := index.Options{Uint64: true, MaxValueBytes: 8}
	inWorld(t, o, 8, 1, func(w *combinetest.World) {
		s, p := w.S, w.Process
		update := func() (d verbs.Counters) {
			before := s[0].Counters()
			fatal(t, s[0].Update(hopKey(0), hopKey(1)))
			after := s[0].Counters()
			return after.Sub(&before)
		}
		update()
		for range 20 {
			if d := update(); d.RoundTrips != 2 || d.Atomics() != 2 {
				t.Errorf("an update takes %d round trips and %d atomics", d.RoundTrips, d.Atomics())
			}
		}
		p.Sleep(10 * time.Minute) // the slot is idle
		if d := update(); d.RoundTrips != 4 || d.Atomics() != 3 {
			t.Errorf("the first update after a while takes %d round trips and %d atomics", d.RoundTrips, d.Atomics())
		}
		if d := update(); d.RoundTrips != 2 {
			t.Errorf("the next one takes %d round trips", d.RoundTrips)
		}
	})
	inWorld(t, o, 1024, 1, func(w *combinetest.World) {
		s, p := w.S, w.Process
		p.Sleep(10 * time.Minute)
		before := s[0].Counters()
		fatal(t, s[0].Update(hopKey(0), hopKey(1)))
		after := s[0].Counters()
		if d := after.Sub(&before); d.RoundTrips != 2 {
			t.Errorf("where a WRITE is whole, an update after a while takes %d round trips", d.RoundTrips)
		}
	})
}
