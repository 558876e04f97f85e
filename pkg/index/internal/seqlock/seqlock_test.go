package seqlock

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// TestVersionGuards: who loads words between two looks at the same even version finds words of one
// change.
func TestVersionGuards(t *testing.T) {
	var version, loaded atomic.Uint64
	var guarded [16]uint64
	const changes, enough = 200_000, 1000
	var readers sync.WaitGroup
	var done atomic.Bool
	for range 2 {
		readers.Go(func() {
			for !done.Load() {
				before := version.Load()
				if before&1 != 0 || before == 0 {
					runtime.Gosched()
					continue
				}
				var found [len(guarded)]uint64
				for i := range found {
					found[i] = atomic.LoadUint64(&guarded[i])
				}
				if version.Load() != before {
					continue
				}
				for i, w := range found {
					if want := before/2*uint64(len(found)) + uint64(i); w != want {
						t.Errorf("version %d has word %d of %d, want %d", before, w, i, want)
						return
					}
				}
				loaded.Add(1)
			}
		})
	}
	for n := uint64(1); n <= changes || loaded.Load() < enough && !t.Failed(); n++ {
		v := version.Load()
		if !version.CompareAndSwap(v, v+1) {
			t.Fatal("somebody else changes the words")
		}
		for i := range guarded {
			Store(&guarded[i], n*uint64(len(guarded))+uint64(i))
		}
		version.Add(1)
		for range 50 { // so that readers come to their end, now and then
			version.Load()
		}
	}
	done.Store(true)
	readers.Wait()
}

var sink [128]uint64

// BenchmarkStore is for a leaf's image. The second is what it is in place of.
func BenchmarkStore(b *testing.B) {
	b.Run("store", func(b *testing.B) {
		for b.Loop() {
			for i := range sink {
				Store(&sink[i], uint64(i))
			}
		}
	})
	b.Run("atomic", func(b *testing.B) {
		for b.Loop() {
			for i := range sink {
				atomic.StoreUint64(&sink[i], uint64(i))
			}
		}
	})
}
