package slottedtree

import (
	"encoding/binary"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

var testAddr = pool.NewAddr(7, 0x12345640)

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func testLayout(t testing.TB, o index.Options) *fence.Layout {
	t.Helper()
	l, err := slotted.NewLayout(o)
	if err != nil {
		t.Fatal(err)
	}
	l.SetSecret(siphash.Key{K0: 1, K1: 2})
	return &l
}

// spread opens a tree of numbers, in small nodes, on three servers.
func spread(t *testing.T) (*Tree, *Session) {
	t.Helper()
	c := pooltest.New(t, pooltest.Options{Servers: 3, Chunks: 40, ChunkBytes: 1 << 20})
	x, err := Open(c.Open(t), Config{Options: index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256}, Design: index.Design{Name: "test"}})
	fatal(t, err)
	s, err := x.NewSession()
	fatal(t, err)
	t.Cleanup(func() {
		s.Close()
		x.Close()
	})
	return x, s
}
