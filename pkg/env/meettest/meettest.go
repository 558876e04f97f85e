// Package meettest lets two threads do something at the same moment, again and again, for tests of
// what processors do with accesses that meet: simulations have no stores that others see late, and
// schedule points none between the instructions of one statement.
package meettest

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// limit is how long Rounds lasts at most, about: on a busy machine a round may take as long as a
// thread runs.
const limit = time.Second

// Rounds calls a and b at the same moment, on two threads, in so many rounds, or in as many as a
// second has time for. Before each round it calls before, and after it after, while nothing else
// runs. All of them have to return: t.Fatal in one would leave the other waiting.
func Rounds(rounds uint64, before, a, b, after func()) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	var at [2]struct {
		atomic.Uint64
		_ [15]uint64 // a line of its own, and the next one
	}
	meet := func(me int, n uint64) {
		at[me].Store(n)
		for at[1-me].Load() < n {
		}
	}
	var last atomic.Uint64
	last.Store(rounds)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := uint64(1); i <= last.Load(); i++ {
			meet(1, 3*i)
			b()
			meet(1, 3*i+1)
			meet(1, 3*i+2)
		}
	})
	begin := time.Now()
	for i := uint64(1); i <= last.Load(); i++ {
		before()
		meet(0, 3*i)
		for range i % 8 { // so that they meet at different steps
			at[0].Load()
		}
		a()
		meet(0, 3*i+1)
		after()
		if i%64 == 0 && time.Since(begin) > limit {
			last.Store(i)
		}
		meet(0, 3*i+2)
	}
	wg.Wait()
}
