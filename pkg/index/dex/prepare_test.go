package dex

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index"
)

// TestChangesUsePreparedFrames: changes of all kinds, modifications too, take the frames that
// Prepare has noted for them, and so need no descent.
func TestChangesUsePreparedFrames(t *testing.T) {
	_, s := opened(t, index.Options{Uint64: true, MaxValueBytes: 16, CacheBytes: 1 << 20})
	var keys, values [][]byte
	for n := range uint64(60) {
		keys, values = append(keys, scanKey(n)), append(values, []byte("value"))
		mustDo(t, s.Upsert(keys[n], values[n]))
	}
	other := func([]byte, bool) ([]byte, index.Action) { return []byte("other"), index.Put }
	mustDo(t, s.Prepare(keys, values))
	for i, key := range keys {
		switch i % 3 {
		case 0:
			mustDo(t, s.Update(key, []byte("other")))
		case 1:
			mustDo(t, s.Delete(key))
		default:
			mustDo(t, s.Modify(key, other))
		}
		if at := s.batch.ready.prepared.at; at != i+1 {
			t.Fatalf("after change %d, frames of %d are used", i, at)
		}
	}
}

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
