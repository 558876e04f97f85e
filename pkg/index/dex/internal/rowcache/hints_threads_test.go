package rowcache

import (
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/pkg/env/meettest"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestHintsBeforeFrames: of a session that sets hints and then looks for a frame, and one that puts
// a frame there and then looks for hints, one finds what the other did.
func TestHintsBeforeFrames(t *testing.T) {
	e := Cache{hints: make([]hints, 64)}
	var f [64]frame.Frame // apart from each other, and from the hints
	var foundFrame, foundHints bool
	missed := 0
	meettest.Rounds(300_000, func() {
		e.setHints(0, hints{})
		f[32].SetAddr(pool.Nil)
	}, func() {
		e.setHints(0, hints{1, 1})
		foundFrame = f[32].Addr() != pool.Nil
	}, func() {
		f[32].SetAddr(1)
		foundHints = atomic.LoadUint64(&e.hints[0].first) != 0 && atomic.LoadUint64(&e.hints[0].second) != 0
	}, func() {
		if !foundFrame && !foundHints {
			missed++
		}
	})
	if missed > 0 {
		t.Errorf("in %d rounds neither found what the other did", missed)
	}
}
