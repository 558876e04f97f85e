package sherman_test

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/sherman"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// BenchmarkBulkLoad loads 10 million pairs of 8 and 8 bytes and says how many a second, what of the
// pool a pair takes, and how much the process's heap grew meanwhile at most. Upserts are a sorted
// load by point operations, of fewer pairs.
func BenchmarkBulkLoad(b *testing.B) {
	const pairs = 10_000_000
	o := index.Options{Uint64: true, MaxValueBytes: 8}
	for _, provider := range []string{"shm", "tcp"} {
		open := func(b *testing.B) index.Index {
			c := pooltest.New(b, pooltest.Options{Provider: provider, Chunks: 96, ChunkBytes: 4 << 20, Servers: 1, Locks: 64 << 10})
			x, err := sherman.Open(c.Open(b), o)
			if err != nil {
				b.Fatal(err)
			}
			return x
		}
		for _, parallel := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("%s/sessions=%d", provider, parallel), func(b *testing.B) {
				for range b.N {
					b.StopTimer()
					x := open(b)
					var before, now runtime.MemStats
					runtime.GC()
					runtime.ReadMemStats(&before)
					peak := before.HeapAlloc
					b.StartTimer()
					var key, value [8]byte
					if err := x.BulkLoad(func(yield func(key, value []byte) bool) error {
						for i := range uint64(pairs) {
							binary.BigEndian.PutUint64(key[:], i*3)
							if !yield(key[:], value[:]) {
								break
							}
							if i%(pairs/10) == 0 {
								runtime.ReadMemStats(&now)
								peak = max(peak, now.HeapAlloc)
							}
						}
						return nil
					}, parallel); err != nil {
						b.Fatal(err)
					}
					b.StopTimer()
					found, err := x.(index.Checker).Check()
					if err != nil || found.Pairs != pairs {
						b.Fatal(found, err)
					}
					b.ReportMetric(float64(found.NodeBytes)/pairs, "pool-B/pair")
					b.ReportMetric(float64(peak-before.HeapAlloc)/(1<<20), "heap-MiB")
				}
				b.ReportMetric(float64(b.N)*pairs/b.Elapsed().Seconds()/1e6, "Mpairs/s")
				b.ReportMetric(0, "ns/op")
			})
		}
		b.Run(provider+"/upserts", func(b *testing.B) {
			x := open(b)
			s, err := x.Session()
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			var key, value [8]byte
			const some = 500_000 // of them, each time
			b.ResetTimer()
			for i := range b.N * some {
				binary.BigEndian.PutUint64(key[:], uint64(i)*3)
				if err := s.Upsert(key[:], value[:]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(b.N)*some/b.Elapsed().Seconds()/1e6, "Mpairs/s")
		})
	}
}
