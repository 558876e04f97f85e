package dex

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestHintsBeforeFrames: of a session that sets hints and then looks for a frame, and one that puts
// a frame there and then looks for hints, one finds what the other did. Simulations have no stores
// that others see late.
func TestHintsBeforeFrames(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	const rounds = 200_000
	const most = time.Second // on a busy machine each may take as long as a thread runs
	e := rowCache{hints: make([]hints, 64)}
	var f [64]frame // apart from each other, and from the hints
	found := [2][]bool{make([]bool, rounds+1), make([]bool, rounds+1)}
	var at [2]struct {
		atomic.Uint64
		_ [15]uint64
	}
	var last atomic.Uint64
	last.Store(rounds)
	begin := time.Now()
	var wg sync.WaitGroup
	for me := range 2 {
		meet := func(n uint64) {
			at[me].Store(n)
			for at[1-me].Load() < n {
			}
		}
		wg.Go(func() {
			for i := uint64(1); i <= last.Load(); i++ {
				if me == 0 {
					if i%64 == 0 && time.Since(begin) > most {
						last.Store(i)
					}
					e.setHints(0, hints{})
					meet(3 * i)
					e.setHints(0, hints{1, 1})
					found[me][i] = f[32].addr.Load() != 0
				} else {
					f[32].addr.Store(0)
					meet(3 * i)
					f[32].addr.Store(1)
					found[me][i] = atomic.LoadUint64(&e.hints[0].first) != 0 && atomic.LoadUint64(&e.hints[0].second) != 0
				}
				meet(3*i + 1) // both have looked
			}
		})
	}
	wg.Wait()
	for i := range last.Load() {
		if i := i + 1; !found[0][i] && !found[1][i] {
			t.Fatalf("round %d: neither found what the other did", i)
		}
	}
}
