package valuecache

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

// TestPartsOfValuesHaveRoom: each part of the cache for values has a bucket, and no more bytes than
// it was given, however small the cache is and however long the values are.
func TestPartsOfValuesHaveRoom(t *testing.T) {
	for _, longest := range []int{17, 300, 4096, 60_000} {
		for size := 8 << 10; size <= 8<<20; size += size / 3 {
			for _, moves := range []bool{false, true} {
				v := new(Cache)
				v.Start(env.Real(), item.HashOf(siphash.Key{}), size, longest, moves)
				given := size / valueTiny
				if moves {
					given = 0
				}
				for v.short.Store(moves); v.Wants() > 0; v.short.Store(true) {
					given += int(v.Wants())
					v.Grow()
				}
				live := int(v.live.Load())
				if moves && live == 0 && v.bucketBytes() <= v.bound {
					t.Fatalf("%d bytes for values up to %d: there is room for a bucket, and no part", size, longest)
				}
				for i := range live {
					if v.parts[i].Empty() {
						t.Fatalf("%d bytes for values up to %d, moves %v: part %d of %d has no bucket", size, longest, moves, i, live)
					}
				}
				if n := int(v.Bytes()); n > given || given > size/2 {
					t.Fatalf("%d bytes for values up to %d: %d are given, %d taken", size, longest, given, n)
				}
			}
		}
	}
}
