package nodecache

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
)

// BenchmarkReplacement is lookups through a cache with room for a quarter of the nodes, of which
// three in eight miss: these ask whether the node would be kept, and then put it. ns/op is for each
// of all goroutines' lookups; cpu-ns/op the processor time that one takes.
func BenchmarkReplacement(b *testing.B) {
	const nodes, room = 1 << 16, 1 << 14
	for n := range 8 {
		shards, goroutines := []int{1, MostShards}[n%2], []int{1, 2, 8, 64}[n/2]
		b.Run(fmt.Sprintf("%d goroutines/%d shards", goroutines, shards), func(b *testing.B) {
			c := NewSharded(env.Real(), copies{}, room*typicalBytes, typicalBytes, shards)
			all := make([]*testCopy, nodes)
			for i := range all {
				all[i] = copyOf(pool.NewAddr(1, uint64(i+1)*1024), 1, 20, 1)
			}
			lookups := func(seed uint64, n int) {
				r := rand.New(rand.NewPCG(seed, 1))
				for range n {
					i := r.IntN(nodes)
					if r.IntN(2) == 0 {
						i = r.IntN(room / 2)
					}
					a := all[i].Addr
					if c.Get(a, 0) == nil && c.Keeps(a, 1, all[i].bytes) {
						c.Put(&copyOf(a, 1, 20, 1).Head)
					}
				}
			}
			lookups(99, 8*nodes)
			runtime.GC()
			b.ResetTimer()
			before := processorTime()
			var g sync.WaitGroup
			for i := range goroutines {
				g.Go(func() { lookups(uint64(i), b.N/goroutines+1) })
			}
			g.Wait()
			b.ReportMetric(float64(processorTime()-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
