package dex

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/invariants"
)

// TestLooksForRoom: a session looks for room where round trips are long, and seldom if there is
// always some.
func TestLooksForRoom(t *testing.T) {
	calls := func(w *readiness, lacks bool) (looked int) {
		for range 10 * vainLooks {
			w.calls++
			w.lack, w.room = false, w.looks()
			if w.room {
				looked++
				w.lack = lacks
			}
			w.looked()
		}
		return looked
	}
	all := 10 * vainLooks
	seldom, never := vainLooks+9, all/tripAgain
	if invariants.Enabled {
		seldom, never = all, all
	}
	w := readiness{trip: 2 * roomPays}
	if n := calls(&w, true); n != all {
		t.Errorf("%d of %d calls look where some frame lacks room", n, all)
	}
	if n := calls(&w, false); n != seldom {
		t.Errorf("%d of %d calls look in vain, want %d", n, all, seldom)
	}
	if n := calls(&w, true); n < all-vainLooks {
		t.Errorf("%d of %d calls look once frames lack room again", n, all)
	}
	short := readiness{trip: time.Microsecond}
	if n := calls(&short, true); n != never {
		t.Errorf("%d of %d calls look where round trips are short, want %d", n, all, never)
	}
}
