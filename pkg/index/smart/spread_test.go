package smart

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestInsertsAreSpread: what is inserted lies on all memory servers, whether keys differ in their
// first byte or far behind, and nearly every insert is one round trip all the same.
func TestInsertsAreSpread(t *testing.T) {
	pairs := 30_000
	if testing.Short() {
		pairs = 22_000
	}
	for name, key := range map[string]func(r *rand.Rand) []byte{
		"hashed": func(r *rand.Rand) []byte { return binary.BigEndian.AppendUint64(nil, r.Uint64()) },
		"prefix": func(r *rand.Rand) []byte { return fmt.Appendf(nil, "user/all of them/%012x", r.Uint64()>>16) },
	} {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 1))
			c := pooltest.New(t, pooltest.Options{Servers: 3, Chunks: 64, ChunkBytes: 64 << 10})
			x, err := Open(c.Open(t), index.Options{MaxKeyBytes: 32, MaxValueBytes: 8})
			if err != nil {
				t.Fatal(err)
			}
			s, err := x.Session()
			if err != nil {
				t.Fatal(err)
			}
			before := s.Counters()
			for range pairs {
				if err := s.Insert(key(r), []byte("12345678")); err != nil {
					t.Fatal(err)
				}
			}
			now := s.Counters()
			d := now.Sub(&before)
			on := map[uint16]int{}
			for _, chunk := range c.Chunks() {
				on[chunk.First.Server()]++
			}
			trips := float64(d.RoundTrips) / float64(pairs)
			t.Logf("chunks of each server: %v; %.2f round trips an insert", on, trips)
			most, least := 0, 1<<30
			for _, id := range x.(*Tree).Pool.Servers() {
				most, least = max(most, on[id]), min(least, on[id])
			}
			if most < 8 || 10*least < 6*most {
				t.Errorf("a server has %d chunks, another one %d", most, least)
			}
			if found, err := x.(index.Checker).Check(); err != nil || found.Pairs != uint64(pairs) {
				t.Errorf("%+v: %v", found, err)
			}
		})
	}
}
