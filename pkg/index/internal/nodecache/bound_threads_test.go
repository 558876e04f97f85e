package nodecache

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/meettest"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestBoundHoldsBesidePuts: of who makes the bound smaller and who puts a copy at the same moment,
// one sees the other: when both are through, the bytes are in the bound that was set.
func TestBoundHoldsBesidePuts(t *testing.T) {
	c := New(env.Real(), copies{}, 100*typicalBytes, typicalBytes)
	n := copyOf(pool.NewAddr(1, 1024), 1, 30, 1)
	small := c.Bytes()
	large := small + typicalBytes*10
	var set bool
	both := 0
	meettest.Rounds(50_000, func() {
		c.Drop(&n.Head)
		if !c.SetBound(large) || c.Bytes() != small {
			t.Fatalf("%d bytes without copies, want %d", c.Bytes(), small)
		}
	}, func() { set = c.SetBound(small) }, func() { c.Put(&n.Head) }, func() {
		if set == n.Kept() {
			both++
		}
	})
	if both > 0 {
		t.Errorf("in %d rounds a bound was set, and a copy kept that it has no room for; or neither", both)
	}
}
