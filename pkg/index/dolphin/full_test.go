package dolphin

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestSplitWithoutInnerNodes: there is memory for leaves, and none for an inner node. An insert
// that would divide a leaf is refused, and the leaf is as it was.
func TestSplitWithoutInnerNodes(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Servers: 1, Chunks: 2, ChunkBytes: 64 << 10})
	x, err := open(c.Open(t), index.Options{MaxKeyBytes: 20, MaxValueBytes: 8, NodeBytes: 576})
	if err != nil {
		t.Fatal(err)
	}
	s, err := x.newSession()
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		for i := range 3 {
			must(s.Insert(fmt.Appendf(nil, "%s%d", k, i), nil))
		}
	}
	var leaves []pool.Addr
	for range 12 {
		a, err := s.PS.AllocateBlock(x.lay.size, pool.Nil)
		must(err)
		leaves = append(leaves, a)
	}
	for size := x.Pool.MostNodeBytes() &^ 63; size > 0; size -= 64 {
		for err = nil; err == nil; {
			_, err = s.PS.AllocateBlock(size, pool.Nil)
		}
	}
	for _, a := range leaves {
		x.Pool.Free(a, x.lay.size)
	}
	refused := false
	for i := 0; !refused && i < 90; i++ {
		err := s.Insert(fmt.Appendf(nil, "g%d", 10+i), nil)
		if refused = errors.Is(err, index.ErrPoolFull); !refused {
			must(err)
		}
	}
	if !refused {
		t.Fatal("there was memory for an inner node")
	}
	found, err := x.Check()
	must(err)
	if found.Unlinked > 0 {
		t.Errorf("%d leaves without slots", found.Unlinked)
	}
	must(s.Delete([]byte("g1")))
}
