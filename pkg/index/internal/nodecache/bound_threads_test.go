package nodecache

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/env/meettest"
)

// TestBoundHoldsBesideTakes: of who makes the bound smaller and who takes bytes at the same moment,
// one sees the other: when both are through, the bytes are in the bound that was set.
func TestBoundHoldsBesideTakes(t *testing.T) {
	const large, small = 100, 50
	c := Cache{shards: make([]shard, 1)}
	var set bool
	lost := 0
	meettest.Rounds(300_000, func() {
		c.bytes.Store(0)
		c.shards[0].bytes = 0
		c.bound.Store(large)
	}, func() { set = c.SetBound(small) }, func() { c.take(&c.shards[0], large) }, func() {
		if set && c.bytes.Load() > small {
			lost++
		}
	})
	if lost > 0 {
		t.Errorf("in %d rounds the bound is %d, and %d bytes are taken", lost, small, large)
	}
}
