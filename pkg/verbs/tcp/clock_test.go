package tcp

import (
	"math"
	"testing"
	"time"
)

// TestWaitNeverEndsEarly: a wait has its whole limit, however long ago the watch looked last and
// however late it goes on with what it took for the time.
func TestWaitNeverEndsEarly(t *testing.T) {
	const hour, limit = int64(time.Hour), int64(3 * time.Second)
	c := &conn{}
	c.clock.init()
	q := &qp{conn: c}
	for list, limit := range []int64{limit, int64(fineLimit), int64(fineLimit) - 1, math.MaxInt64} {
		state := uint64(list+1)<<stateBits | pending | parked
		looked := c.clock.now()
		// The watch stands still for so long after it has read the clock.
		c.clock.base = c.clock.base.Add(-time.Hour)
		q.limit.Store(limit)
		began := c.clock.now()
		q.setDeadline(time.Duration(limit))
		for _, ahead := range []int64{looked, began} {
			if left := int64(q.left(state, ahead)); left < limit-(c.clock.now()-began) {
				t.Errorf("a wait with a limit of %v that has just begun has %v left", time.Duration(limit), time.Duration(left))
			}
		}
		if over := q.left(state, began+hour); (over > 0) != (limit > hour) {
			t.Errorf("a wait with a limit of %v has %v left an hour later", time.Duration(limit), over)
		}
	}
}
