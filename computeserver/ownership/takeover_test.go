package ownership

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestTakeOversAreBounded: the last ones are remembered, and none of ranges that nobody left
// anything in.
func TestTakeOversAreBounded(t *testing.T) {
	all := NewTakeOvers(env.Real())
	for n := range uint64(3 * takeOversKept) {
		r := heldRange{Holding: pool.Holding{Epoch: n}}
		if n%2 == 0 {
			r.Inherits = []pool.Inherited{{Client: 3}, {Client: 3}, {Client: 4}}
		}
		all.note(r, time.Second)
	}
	last := all.Describe(2 * time.Second)
	if len(last) != takeOversKept || last[0].Epoch != takeOversKept || len(last[0].Clients) != 2 {
		t.Errorf("%d, first %v", len(last), last[0])
	}
}
