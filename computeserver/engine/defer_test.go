package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/partition"
)

// TestMoveIsDeferred: a range whose Give finds no memory is served on and says why. It moves when
// there is memory, or stays if a newer map leaves it.
func TestMoveIsDeferred(t *testing.T) {
	for _, stays := range []bool{false, true} {
		withManager(t, func(e env.Env, c *Engine, s *scripted) {
			serving := func() bool { all := c.Ranges(); return len(all) == 1 && all[0].State == ownership.RangeServing }
			serves := func(want bool) bool {
				_, ok := c.Sessions.tables.Current().Serves(s, []byte("k"), false)
				place, _ := c.View.Place(c.View.Route(), []byte("k"))
				return ok == want && (place == ownership.Here) == want
			}
			c.View.Apply(mapFor(t, 1, 1))
			until(t, e, "the range is served", serving)
			full, gives := true, 0
			s.give = func() error {
				if gives++; full {
					return index.ErrPoolFull
				}
				return nil
			}
			c.View.Apply(mapFor(t, 2, 5))
			until(t, e, "it is tried", func() bool { return gives > 0 })
			idle := 0
			for begun := e.Now(); e.Now()-begun < 100*time.Second; e.Sleep(100 * time.Millisecond) {
				all := c.Ranges()
				if len(all) != 1 || !all[0].PoolFull || !strings.Contains(all[0].Reason, index.ErrPoolFull.Error()) {
					t.Fatalf("it is not told: %+v", all)
				}
				if !serving() || !serves(true) { // for the moment of an attempt
					idle++
				}
			}
			if gives < 5 || gives > 9 || idle > gives {
				t.Errorf("%d attempts in 100 s; in %d looks of 1000 the range was not served", gives, idle)
			}
			if stays {
				c.View.Apply(mapFor(t, 3, 1))
				until(t, e, "it stays", func() bool {
					all := c.Ranges()
					return serving() && !all[0].PoolFull && all[0].Reason == "" && serves(true)
				})
			}
			full = false
			if stays {
				return
			}
			until(t, e, "it is released", func() bool {
				return strings.HasSuffix(strings.Join(s.calls, " "), "give give release") && serves(false)
			})
		})
	}
}

// TestPartsBecomeOne: a range is divided for a move that finds no memory, and a newer map takes the
// move back. The parts are one grant, and become one range again.
func TestPartsBecomeOne(t *testing.T) {
	withManager(t, func(e env.Env, c *Engine, s *scripted) {
		s.give = func() error { return index.ErrPoolFull }
		c.View.Apply(mapFor(t, 1, 1))
		until(t, e, "the range is served", func() bool { return len(c.Ranges()) == 1 && c.Ranges()[0].State == ownership.RangeServing })
		for n := range 3 {
			m := mapFor(t, uint64(2+2*n), 1)
			m.Servers = append(m.Servers, partition.Server{ID: 5, Name: "other"})
			m.Ranges = append(m.Ranges, partition.Range{Start: []byte{byte('h' + n)}, Owner: 5, Epoch: 1})
			c.View.Apply(m)
			until(t, e, "the move is deferred", func() bool { all := c.Ranges(); return len(all) == 2 && all[1].PoolFull })
			c.View.Apply(mapFor(t, uint64(3+2*n), 1))
			until(t, e, "it is one range again", func() bool { return len(c.Ranges()) == 1 && c.Ranges()[0].State == ownership.RangeServing })
		}
	})
}

// TestEndMeetsAttempt: a server ends while it tries to give a part of a grant, for which there is
// no memory, or is about to. It gives the grant as a whole.
func TestEndMeetsAttempt(t *testing.T) {
	for _, busy := range []bool{false, true} { // a session keeps the attempt from beginning
		withManager(t, func(e env.Env, c *Engine, s *scripted) {
			c.View.Apply(mapFor(t, 1, 1))
			until(t, e, "the range is served", func() bool { return len(c.Ranges()) == 1 && c.Ranges()[0].State == ownership.RangeServing })
			part, gives, whole := false, 0, 0
			s.give = func() error {
				if gives++; part {
					e.Sleep(300 * time.Millisecond)
				}
				if len(c.Ranges()) == 1 {
					whole++
					return nil
				}
				return index.ErrPoolFull
			}
			m := mapFor(t, 2, 1)
			m.Servers = append(m.Servers, partition.Server{ID: 5, Name: "other"})
			m.Ranges = append(m.Ranges, partition.Range{Start: []byte("h"), Owner: 5, Epoch: 1})
			c.View.Apply(m)
			until(t, e, "the move is deferred", func() bool { all := c.Ranges(); return len(all) == 2 && all[1].PoolFull })
			part = true
			var lent *Session
			if busy {
				var err error
				if lent, err = c.Sessions.Borrow(time.Second, 0); err != nil {
					t.Fatal(err)
				}
			}
			before := gives
			until(t, e, "it is tried again", func() bool { return gives > before || c.Ranges()[1].State == ownership.RangeClosing })
			if busy {
				e.Go("request", func() {
					e.Sleep(100 * time.Millisecond)
					c.Sessions.Repay(lent, nil)
				})
			}
			c.Sessions.Halt(time.Minute)
			if whole != 1 {
				t.Errorf("the grant was not given as a whole: %v", s.calls)
			}
		})
	}
}
