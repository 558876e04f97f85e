package ibv

import (
	"sync"
	"sync/atomic"
)

// destroyers is how many queue pairs of a connection are destroyed at the same time: the kernel
// lets some wait for milliseconds.
const destroyers = 16

// together calls f for 0 to n-1, some at the same time, and returns when all have returned.
func together(n int, f func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(n, destroyers) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	all.Wait()
}
