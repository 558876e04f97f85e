package sherman_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/tidwall/btree"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/sherman"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// benchKeys is how many keys the benchmarks have in the index and in the map beside it.
const benchKeys = 2 << 20

func benchKey(i int) uint64 { return uint64(i) * 0x9E3779B97F4A7C15 }

// BenchmarkBeside compares an index on shm, leaves not cached, with a B-tree in the same process:
// the same keys in the same order. The ratio of a pair of lines is what counts.
func BenchmarkBeside(b *testing.B) {
	c := pooltest.New(b, pooltest.Options{Chunks: 64, ChunkBytes: 4 << 20, Servers: 1, Locks: 64 << 10})
	x, err := sherman.Open(c.Open(b), index.Options{Uint64: true, MaxValueBytes: 8})
	if err != nil {
		b.Fatal(err)
	}
	s, err := x.Session()
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	var m btree.Map[uint64, uint64]
	var key, value [8]byte
	put := func(i int) []byte {
		binary.BigEndian.PutUint64(key[:], benchKey(i))
		return key[:]
	}
	for i := range benchKeys {
		if err := s.Insert(put(i), value[:]); err != nil {
			b.Fatal(err)
		}
		m.Set(benchKey(i), 0)
	}
	order := rand.New(rand.NewPCG(1, 1)).Perm(benchKeys)
	at := func(i int) int { return order[i%benchKeys] }
	var dst []byte
	fail := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	b.Run("Lookup", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			var err error
			dst, err = s.Lookup(put(at(i)), dst[:0])
			fail(err)
		}
	})
	b.Run("MapGet", func(b *testing.B) {
		for i := range b.N {
			if _, ok := m.Get(benchKey(at(i))); !ok {
				b.Fatal(i)
			}
		}
	})
	b.Run("Upsert", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			binary.LittleEndian.PutUint64(value[:], uint64(i))
			fail(s.Upsert(put(at(i)), value[:]))
		}
	})
	b.Run("MapSet", func(b *testing.B) {
		for i := range b.N {
			m.Set(benchKey(at(i)), uint64(i))
		}
	})
	b.Run("Scan100", func(b *testing.B) {
		b.ReportAllocs()
		sum := uint64(0)
		visit := func(k, v []byte) bool { sum += binary.BigEndian.Uint64(k); return true }
		for i := range b.N {
			fail(s.Scan(put(at(i)), 100, false, visit))
		}
	})
	b.Run("MapAscend100", func(b *testing.B) {
		sum := uint64(0)
		for i := range b.N {
			n := 0
			m.Ascend(benchKey(at(i)), func(k, v uint64) bool { sum += k; n++; return n < 100 })
		}
	})
}
