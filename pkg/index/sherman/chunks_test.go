package sherman_test

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/sherman"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestSmallIndexTakesFewChunks: an index with values of many sizes takes one chunk of each server
// for each client that writes, whatever the sizes.
func TestSmallIndexTakesFewChunks(t *testing.T) {
	const servers, clients = 2, 3
	c := pooltest.New(t, pooltest.Options{Servers: servers, Chunks: 64, ChunkBytes: 8 << 20})
	o := index.Options{Uint64: true, MaxValueBytes: 4096, InlineBytes: 16}
	n := 0
	for range clients {
		x, err := sherman.Open(c.Open(t), o)
		must(t, err)
		s, err := x.Session()
		must(t, err)
		t.Cleanup(func() { s.Close(); x.Close() })
		for size := 8; size <= 4096; size += 8 {
			n++
			must(t, s.Insert(key(n), make([]byte, size)))
		}
	}
	t.Logf("%d pairs with values of 8 to 4096 bytes, by %d clients on %d servers: %d chunks", n, clients, servers, c.UsedChunks())
	if used := c.UsedChunks(); used > servers*clients {
		t.Errorf("%d chunks", used)
	}
}
