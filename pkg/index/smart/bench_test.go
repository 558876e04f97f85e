package smart_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidwall/btree"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/indextest"
	"github.com/dmindex/dmindex/pkg/index/smart"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// besideKeys is how many keys BenchmarkLookupBeside has in the index and in the map.
const besideKeys = 1 << 20

// BenchmarkRatios compares an index on shm with a B-tree in the same process, and two goroutines
// with one.
func BenchmarkRatios(b *testing.B) {
	c := pooltest.New(b, pooltest.Options{Chunks: 128, ChunkBytes: 4 << 20, Servers: 1, Locks: 64 << 10})
	x, err := smart.Open(c.Open(b), index.Options{Uint64: true, MaxValueBytes: 8, CacheBytes: 256 << 20})
	if err != nil {
		b.Fatal(err)
	}
	indextest.Ratios(b, x)
}

// BenchmarkLookupBeside compares lookups of an index on shm, inner nodes cached, with those of a
// B-tree in the same process: the same keys in the same order, in short turns, so that a slow
// moment of the machine meets both. What counts is the ratio: of all turns, and of the best ones.
func BenchmarkLookupBeside(b *testing.B) {
	for _, kind := range []struct {
		name    string
		options index.Options
		key     func(dst []byte, i int) []byte
	}{
		{"uint64", index.Options{Uint64: true, MaxValueBytes: 8}, func(dst []byte, i int) []byte {
			return binary.BigEndian.AppendUint64(dst, indextest.RatioKey(i))
		}},
		{"string32", index.Options{MaxKeyBytes: 32, MaxValueBytes: 8}, func(dst []byte, i int) []byte {
			return fmt.Appendf(dst, "user%028d", indextest.RatioKey(i))
		}},
	} {
		b.Run(kind.name, func(b *testing.B) {
			kind.options.CacheBytes = 512 << 20
			c := pooltest.New(b, pooltest.Options{Chunks: 128, ChunkBytes: 4 << 20, Servers: 1, Locks: 64 << 10})
			x, err := smart.Open(c.Open(b), kind.options)
			if err != nil {
				b.Fatal(err)
			}
			s, err := x.Session()
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			keys := make([][]byte, besideKeys)
			var strings btree.Map[string, uint64]
			var numbers btree.Map[uint64, uint64]
			for i := range keys {
				keys[i] = kind.key(nil, i)
				if err := s.Upsert(keys[i], []byte("12345678")); err != nil {
					b.Fatal(err)
				}
				if kind.options.Uint64 {
					numbers.Set(indextest.RatioKey(i), uint64(i))
				} else {
					strings.Set(string(keys[i]), uint64(i))
				}
			}
			order := rand.New(rand.NewPCG(1, 1)).Perm(besideKeys)
			var dst []byte
			at := 0
			next := func() int {
				if at++; at == len(order) {
					at = 0
				}
				return order[at]
			}
			lookup := func() {
				var err error
				if dst, err = s.Lookup(keys[next()], dst[:0]); err != nil {
					b.Fatal(err)
				}
			}
			get := func() {
				if _, ok := strings.Get(string(keys[next()])); !ok {
					b.Fatal("a key is missing")
				}
			}
			if kind.options.Uint64 {
				get = func() {
					if _, ok := numbers.Get(binary.BigEndian.Uint64(keys[next()])); !ok {
						b.Fatal("a key is missing")
					}
				}
			}
			for range keys { // what is not cached yet is READ
				lookup()
			}
			var spent [2]time.Duration
			best := [2]time.Duration{time.Hour, time.Hour} // turns
			const turn = 1000
			b.ResetTimer()
			for range (b.N + turn - 1) / turn {
				for i, do := range []func(){lookup, get} {
					start := time.Now()
					for range turn {
						do()
					}
					took := time.Since(start)
					spent[i] += took
					best[i] = min(best[i], took)
				}
			}
			b.ReportMetric(float64(spent[0].Nanoseconds())/float64((b.N+turn-1)/turn*turn), "ns/lookup")
			b.ReportMetric(float64(spent[1].Nanoseconds())/float64((b.N+turn-1)/turn*turn), "ns/map")
			b.ReportMetric(float64(spent[0])/float64(spent[1]), "lookup/map")
			b.ReportMetric(float64(best[0])/float64(best[1]), "best/best")
		})
	}
}
