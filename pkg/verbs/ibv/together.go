package ibv

import (
	"sync"
	"sync/atomic"
)

// destroyers is how many queue pairs of a connection are destroyed at the same time, since the
// kernel lets some wait for milliseconds, and how many connections are closed so, since some
// servers may not answer.
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
