package smart

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestSpaceOfPairs: an 8/8 pair takes at most twice its bytes and 64 more, inserted in random order
// or loaded in order.
func TestSpaceOfPairs(t *testing.T) {
	pairs := 60_000
	if testing.Short() {
		pairs = 15_000
	}
	for _, loaded := range []bool{false, true} {
		c := pooltest.New(t, pooltest.Options{Chunks: 32, ChunkBytes: 1 << 20})
		x, err := Open(c.Open(t), index.Options{Uint64: true, MaxValueBytes: 8})
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(3, 3))
		keys := make([]uint64, pairs)
		for i := range keys {
			keys[i] = r.Uint64()
		}
		var value [8]byte
		if loaded {
			slices.Sort(keys)
			err = x.BulkLoad(func(yield func(k, v []byte) bool) error {
				for _, k := range keys {
					if !yield(binary.BigEndian.AppendUint64(nil, k), value[:]) {
						break
					}
				}
				return nil
			}, 2)
		} else {
			var s index.Session
			if s, err = x.Session(); err != nil {
				t.Fatal(err)
			}
			for _, k := range keys {
				if err = s.Insert(binary.BigEndian.AppendUint64(nil, k), value[:]); err != nil {
					break
				}
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		found, err := x.(index.Checker).Check()
		if err != nil || found.Pairs != uint64(pairs) {
			t.Fatalf("%+v: %v", found, err)
		}
		each := float64(found.NodeBytes) / float64(pairs)
		t.Logf("loaded %v: %.1f bytes for each pair, %d nodes on %d levels", loaded, each, found.Nodes, found.Levels)
		if each > 2*(8+8)+64 {
			t.Errorf("loaded %v: %.1f bytes for each pair", loaded, each)
		}
	}
}
