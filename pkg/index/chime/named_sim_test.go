package chime_test

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/chime"
	"github.com/dmindex/dmindex/pkg/index/internal/combine/combinetest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestHomeWordsNameWhatIsThere: a reader that READ one slot before a key hopped there, and the
// other one after it, sees the key in neither, and takes the home word's word for it that the key
// is gone. So at every moment of a delete, alone or with others in one list, no slot has a key that
// its home word has ceased to name: a later reader would find it there, and if the client dies it
// stays.
func TestHomeWordsNameWhatIsThere(t *testing.T) {
	const waiters = 4
	combined := uint64(0)
	for seed := range uint64(6) {
		h := newHopWorld(t, seed)
		var coming [waiters]struct{ n, inserts int } // what each session is about
		err := h.w.Run(func(p *simenv.Process) {
			x, holder, err := h.open(p)
			for n := range 8 {
				if err == nil {
					err = holder.Insert(h.key(n), hopKey(n))
				}
			}
			if err != nil {
				h.check(err, "fill")
				return
			}
			found, err := x.(index.Checker).Check()
			h.check(err, "check")
			leaf := found.Memory[0].Addr
			memory := h.c.Memory(leaf.Server(), verbs.RegionData)[leaf.Offset():][:h.options.NodeBytes]
			over, looked := false, p.NewEvent()
			p.Go("look", func() {
				defer looked.Set()
				for ; !over; p.Sleep(200 * time.Nanosecond) {
					for n := range 8 + waiters {
						inserts := false
						for _, c := range coming {
							inserts = inserts || c.n == n && c.inserts > 0
						}
						if !inserts && chime.Unnamed(x, leaf, memory, h.key(n)) {
							t.Fatalf("seed %d: key %d is there, and its home word does not name it", seed, n)
						}
					}
				}
			})
			sessions := make([]index.Session, waiters)
			for i := range sessions {
				sessions[i], err = x.Session()
				h.check(err, "session")
			}
			for range 6 {
				others := make([]func(), waiters)
				for i := range others {
					others[i] = func() {
						c := &coming[i]
						c.n = 8 + i
						c.inserts++
						h.check(sessions[i].Upsert(h.key(c.n), hopKey(c.n)), "insert")
						c.inserts--
					}
				}
				combinetest.WhileHeld(t, p, holder, h.key(0), others...)
				for i := range others {
					others[i] = func() { h.check(sessions[i].Delete(h.key(8+i)), "delete") }
				}
				combinetest.WhileHeld(t, p, holder, h.key(0), others...)
			}
			over = true
			looked.Wait(env.Forever)
			combined += x.Stats().Combined
		})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if t.Logf("%d changes were made with others", combined); combined == 0 {
		t.Error("no session has made the change of another one")
	}
}
