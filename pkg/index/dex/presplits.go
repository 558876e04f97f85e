package dex

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/invariants"
)

// presplits is what is known of leaves without room.
type presplits struct {
	left atomic.Int32 // for how many batches sessions look for such leaves still

	// counts for tests: leaves that were divided beforehand, those that became three or more at
	// once, and new ones that stayed empty and were merged
	divided, many, tidied atomic.Uint64
}

// growLooks is for how many more batches sessions look when one has met a leaf without room.
const growLooks = 256

// seldom makes sessions look by chance. It is so in builds with invariants, but for a test.
var seldom = invariants.Enabled

// met notes that a leaf had no room.
func (g *presplits) met() { g.left.Store(growLooks) }

// looks reports whether a batch looks for leaves without room.
func (g *presplits) looks(e env.Env) bool {
	if seldom {
		return e.Uint64()%4 > 0
	}
	n := g.left.Load()
	if n > 0 {
		g.left.CompareAndSwap(n, n-1)
	}
	return n > 0
}
