package nodecache

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestShardKeepsItsPart: what a shard does not use of its part of the bytes is nobody else's. When
// it needs it again it has it, though the others are full of copies that are in use.
func TestShardKeepsItsPart(t *testing.T) {
	inShards(t)
	k := NewSharded(env.Real(), copies{}, 100*typicalBytes, typicalBytes, 2)
	if len(k.shards) != 2 {
		t.Fatalf("%d shards", len(k.shards))
	}
	const nodes = 1000
	put := func(s *shard) (kept []*testCopy) {
		for i := range nodes {
			a := pool.NewAddr(1, uint64(i+1)*1024)
			if k.shardOf(a) != s || k.Get(a, 0) != nil {
				continue
			}
			n := copyOf(a, 1, 30, 1)
			k.Put(&n.Head)
			if n.Kept() {
				kept = append(kept, n)
				for range 20 {
					n.Found()
				}
			}
		}
		return kept
	}
	first := put(&k.shards[0])
	put(&k.shards[1])
	for _, n := range first {
		k.Drop(&n.Head)
	}
	put(&k.shards[1])
	if again := put(&k.shards[0]); len(again) < len(first) || len(first) < 20 {
		t.Errorf("a shard kept %d copies, and when they were dropped %d others", len(first), len(again))
	}
}
