package dex_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// BenchmarkReplay takes all keys of a client whose log is as full as it gets before leaves are
// written back: of a million keys it changed some at random. A record a batch, as with one
// goroutine.
func BenchmarkReplay(b *testing.B) {
	for _, provider := range []string{"shm", "tcp"} {
		b.Run(provider, func(b *testing.B) { replayed(b, provider, 1_000_000) })
	}
}

func replayed(b *testing.B, provider string, keys uint64) {
	c := pooltest.New(b, pooltest.Options{Provider: provider, Chunks: 64, ChunkBytes: 8 << 20, Servers: 1, Locks: 64 << 10})
	open := func() index.Partitioned {
		x, err := dex.Open(c.Open(b), index.Options{Uint64: true, MaxValueBytes: 8, CacheBytes: 256 << 20})
		if err != nil {
			b.Fatal(err)
		}
		return x.(index.Partitioned)
	}
	key := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n*(1<<63/keys)*2) }
	first := open()
	if err := first.Take(pool.Holding{Epoch: 1}); err != nil {
		b.Fatal(err)
	}
	n := uint64(0)
	if err := first.BulkLoad(func(yield func(k, v []byte) bool) error {
		for ; n < keys && yield(key(n), key(n)); n++ {
		}
		return nil
	}, 2); err != nil {
		b.Fatal(err)
	}
	s, err := first.Session()
	if err != nil {
		b.Fatal(err)
	}
	r, changed := rand.New(rand.NewPCG(1, 2)), map[uint64]bool{}
	for range 43_000 { // of 48 bytes, half of the ring
		n := r.Uint64N(keys)
		changed[n] = true
		if err := s.Upsert(key(n), fmt.Appendf(nil, "%d", n)); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for i := range b.N {
		x := open()
		if err := x.Take(pool.Holding{Epoch: uint64(i + 2), Inherits: []pool.Inherited{{Client: 1, Epoch: 1, Log: first.Log()}}}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(changed)), "keys")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(len(changed)), "us/key")
}
