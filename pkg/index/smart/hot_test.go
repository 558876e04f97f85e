package smart

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestHotPathIsCached: a cache is full of copies of nodes near the root, also of such that are too
// old to be followed. Then one key is looked up all the time, whose nodes lie further down. They
// take the place of what nobody asks for, and a lookup READs the leaf only.
func TestHotPathIsCached(t *testing.T) {
	const bound = 24 << 10
	for _, old := range []bool{false, true} {
		c := pooltest.New(t, pooltest.Options{Chunks: 16, RenewEvery: time.Millisecond})
		x, err := Open(c.Open(t), index.Options{Uint64: true, MaxValueBytes: 8, CacheBytes: bound})
		if err != nil {
			t.Fatal(err)
		}
		s, err := x.Session()
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(1, 1))
		put := func(k uint64) []byte {
			b := binary.BigEndian.AppendUint64(nil, k)
			if err := s.Insert(b, b); err != nil {
				t.Fatal(err)
			}
			return b
		}
		var cold [][]byte
		for range 10_000 {
			cold = append(cold, put(r.Uint64()))
		}
		const prefix = 0x7711223344 << 24 // two nodes below the root
		hot := put(prefix)
		for i := range uint64(64) {
			put(prefix | i<<16 | 1)
		}
		reads := func(keys [][]byte, n int) float64 {
			before := s.Counters()
			for i := range n {
				if _, err := s.Lookup(keys[i%len(keys)], nil); err != nil {
					t.Fatal(err)
				}
			}
			now := s.Counters()
			d := now.Sub(&before)
			return float64(d.Requests[verbs.Read]) / float64(n)
		}
		reads(cold, 2*len(cold)) // they fill the cache
		p := x.(*Tree).Pool
		for i, floor := 0, p.Floor(); old && p.Floor() == floor; i++ {
			if err := s.Delete(cold[i]); err != nil {
				t.Fatal(err)
			}
		}
		reads([][]byte{hot}, 30_000)
		if each := reads([][]byte{hot}, 1000); each > 1.01 {
			t.Errorf("too old copies: %v: a key that alone is looked up takes %.2f READs a lookup, with %d of %d bytes in the cache", old, each, x.Stats().CacheBytes, bound)
		}
	}
}
