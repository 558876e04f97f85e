package dolphin_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dolphin"
	"github.com/dmindex/dmindex/pkg/index/sherman"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// BenchmarkCache is the bytes of cached inner nodes for an item, at 33 numbers of items that grow
// by a factor of 256 in all, the period of radix trees with random keys: on average, and where they
// are most. The table of the cache, which goes by its bound, is not counted.
func BenchmarkCache(b *testing.B) {
	for _, open := range []struct {
		what string
		open func(*pool.Pool, index.Options) (index.Index, error)
	}{{"dolphin", dolphin.Open}, {"sherman", sherman.Open}} {
		b.Run(open.what, func(b *testing.B) {
			const first, steps = 1 << 13, 32
			c := pooltest.New(b, pooltest.Options{Servers: 1, Chunks: 48, ChunkBytes: 4 << 20})
			client := func() (index.Index, index.Session) {
				x, err := open.open(c.Open(b), index.Options{Uint64: true, MaxValueBytes: 8})
				if err != nil {
					b.Fatal(err)
				}
				s, err := x.Session()
				if err != nil {
					b.Fatal(err)
				}
				return x, s
			}
			_, s := client()
			keys, random := [][]byte(nil), rand.New(rand.NewPCG(1, 1))
			sum, most, where := 0.0, 0.0, 0
			for step := range steps + 1 {
				for float64(len(keys)) < first*math.Pow(256, float64(step)/steps) {
					k := binary.BigEndian.AppendUint64(nil, random.Uint64())
					if err := s.Insert(k, k); err != nil {
						b.Fatal(err)
					}
					keys = append(keys, k)
				}
				x, r := client()
				table := x.Stats().CacheBytes
				for _, k := range keys {
					if _, err := r.Lookup(k, nil); err != nil {
						b.Fatal(err)
					}
				}
				each := float64(x.Stats().CacheBytes-table) / float64(len(keys))
				if step < steps { // the last one is where the period begins anew
					sum += each
				}
				if each > most {
					most, where = each, len(keys)
				}
				if err := r.Close(); err != nil {
					b.Fatal(err)
				}
				if err := x.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(sum/steps, "B/item")
			b.ReportMetric(most, "most-B/item")
			b.ReportMetric(float64(where), "items-at-most")
		})
	}
}
