package index

import (
	"sync"
	"testing"
)

// TestTurns: one at a time in a namespace, any number in different ones, and nothing is kept of
// namespaces in which nobody acts.
func TestTurns(t *testing.T) {
	turns := newTurns()
	mine, other := 0, turns.take("other") // which holds up nobody here
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				done := turns.take("mine")
				mine++ // seen by the race detector if two have the turn
				done()
			}
		})
	}
	all.Wait()
	other()
	if mine != 8*200 || len(turns.of) != 0 {
		t.Errorf("%d turns, %d namespaces kept; want %d and none", mine, len(turns.of), 8*200)
	}
}
