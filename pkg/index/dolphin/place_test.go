package dolphin

import (
	"encoding/binary"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestLoadsAreSpread: each memory server has its share of the leaves that a bulk load makes.
func TestLoadsAreSpread(t *testing.T) {
	const servers = 3
	c := pooltest.New(t, pooltest.Options{Servers: servers, Chunks: 8, ChunkBytes: 256 << 10})
	x, err := open(c.Open(t), index.Options{Uint64: true, MaxValueBytes: 8})
	must(t, err)
	must(t, x.BulkLoad(func(yield func(key, value []byte) bool) error {
		for i := range uint64(3000) {
			k := binary.BigEndian.AppendUint64(nil, i)
			if !yield(k, k) {
				break
			}
		}
		return nil
	}, 2))
	found, err := x.Check()
	must(t, err)
	leaves, on := 0, map[uint16]int{}
	for _, m := range found.Memory {
		if m.Bytes == x.lay.size {
			leaves++
			on[m.Addr.Server()]++
		}
	}
	for id := range uint16(servers) {
		if on[id+1] < leaves/(2*servers) {
			t.Errorf("server %d has %d of %d leaves", id+1, on[id+1], leaves)
		}
	}
}
