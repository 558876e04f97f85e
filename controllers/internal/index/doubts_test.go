package index

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/controllers/internal/operatortest"
)

// TestDoubt: what is said often enough, over a while, for the same reason, is believed.
func TestDoubt(t *testing.T) {
	type look struct {
		at  time.Duration
		why string
	}
	f := func(name string, want bool, looks ...look) {
		t.Helper()
		var d doubt
		var sure bool
		for i, l := range looks {
			d, sure = d.look(l.why, operatortest.Noon.Add(l.at))
			if sure && i < len(looks)-1 {
				t.Errorf("%s: believed after %d looks", name, i+1)
			}
		}
		if sure != want {
			t.Errorf("%s: %v", name, sure)
		}
	}
	f("one look", false, look{0, "a"})
	f("three in a row", true, look{0, "a"}, look{time.Second, "a"}, look{2 * time.Second, "a"})
	f("many at once", false, look{0, "a"}, look{0, "a"}, look{time.Millisecond, "a"}, look{2 * time.Millisecond, "a"})
	f("some of them at once", true, look{0, "a"}, look{1, "a"}, look{time.Second, "a"}, look{time.Second + 1, "a"}, look{3 * time.Second, "a"})
	f("for another reason", false, look{0, "a"}, look{time.Second, "a"}, look{2 * time.Second, "b"})
	f("the clock was put back", false, look{time.Hour, "a"}, look{0, "a"}, look{time.Second, "a"})
}
