package bufferpool

import (
	"sync"
	"testing"
	"unsafe"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/internal/lfu"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestCoolingMap: a bucket is a line of the processor's cache, first in first out; what leaves the
// map has entered it, once.
func TestCoolingMap(t *testing.T) {
	var m coolingMap
	const nodes = 1200
	m.start(env.Real(), nodes, true)
	if m.stride*int(unsafe.Sizeof(m.words[0])) != 64 || m.buckets*m.size != nodes/coolShare {
		t.Fatalf("%d buckets of %d, of %d words", m.buckets, m.size, m.stride)
	}
	bucket := func(entry uint64) int { return int(lfu.Hash(pool.Addr(entry)) >> 32 * uint64(m.buckets) >> 32) }
	queues := make([][]uint64, m.buckets)
	for n := range uint64(nodes) {
		entry := (n + 1) * 1024
		if n%5 == 0 {
			entry |= innerBit
		}
		q := &queues[bucket(entry)]
		*q = append(*q, entry)
		want := uint64(0)
		if len(*q) > coolSize {
			want, *q = (*q)[0], (*q)[1:]
		}
		if got := m.push(entry); got != want {
			t.Fatalf("%x leaves bucket %d for %x, want %x", got, bucket(entry), entry, want)
		}
	}
	for left := nodes / coolShare; left > 0; left-- {
		got := m.any()
		q := &queues[bucket(got)]
		if len(*q) == 0 || (*q)[0] != got {
			t.Fatalf("%x leaves its bucket, which has %x", got, *q)
		}
		*q = (*q)[1:]
	}
	if got := m.any(); got != 0 {
		t.Fatalf("%x leaves an empty map", got)
	}
}

// TestCoolingMapBesideOthers: goroutines push and take at the same time; each entry leaves once.
func TestCoolingMapBesideOthers(t *testing.T) {
	for _, buckets := range []bool{true, false} {
		var m coolingMap
		m.start(env.Real(), 400, buckets)
		const workers, each = 4, 3000
		var left [workers * each]int
		var mu sync.Mutex
		leave := func(entry uint64) {
			if entry != 0 {
				mu.Lock()
				left[entry/64-1]++
				mu.Unlock()
			}
		}
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for n := range each {
					leave(m.push(uint64(w*each+n+1) * 64))
					if n%3 == 0 {
						leave(m.any())
					}
				}
			})
		}
		wg.Wait()
		for out := m.any(); out != 0; out = m.any() {
			leave(out)
		}
		for n, times := range left {
			if times != 1 {
				t.Fatalf("buckets %v: entry %d left %d times", buckets, n, times)
			}
		}
	}
}
