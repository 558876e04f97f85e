package ibv

import (
	"sync/atomic"
	"testing"
)

func TestTogether(t *testing.T) {
	for _, n := range []int{0, 1, destroyers, 10*destroyers + 1} {
		calls := make([]atomic.Int32, n)
		together(n, func(i int) { calls[i].Add(1) })
		for i := range calls {
			if c := calls[i].Load(); c != 1 {
				t.Errorf("%d of %d is called %d times", i, n, c)
			}
		}
	}
}
