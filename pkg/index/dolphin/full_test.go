package dolphin

import (
	"errors"
	"fmt"
	"strings"
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
	for _, k := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		for i := range 3 {
			must(t, s.Insert(fmt.Appendf(nil, "%s%d", k, i), nil))
		}
	}
	var leaves []pool.Addr
	for range 12 {
		a, err := s.PS.AllocateBlock(x.lay.size, pool.Nil)
		must(t, err)
		leaves = append(leaves, a)
	}
	takeAll(s)
	for _, a := range leaves {
		x.Pool.Free(a, x.lay.size)
	}
	refused := false
	for i := 0; !refused && i < 90; i++ {
		err := s.Insert(fmt.Appendf(nil, "g%d", 10+i), nil)
		if refused = errors.Is(err, index.ErrPoolFull); !refused {
			must(t, err)
		}
	}
	if !refused {
		t.Fatal("there was memory for an inner node")
	}
	found, err := x.Check()
	must(t, err)
	if found.Unlinked > 0 {
		t.Errorf("%d leaves without slots", found.Unlinked)
	}
	must(t, s.Delete([]byte("g1")))
}

// takeAll takes all memory that there is, and returns it by its size.
func takeAll(s *Session) map[pool.Addr]int {
	taken := map[pool.Addr]int{}
	for size := s.Pool.MostNodeBytes() &^ 63; size > 0; size -= 64 {
		for {
			a, err := s.PS.AllocateBlock(size, pool.Nil)
			if err != nil {
				break
			}
			taken[a] = size
		}
	}
	return taken
}

// TestFullBehindAForwardWord: a client died behind the forward word of a split, and there is no
// memory for what follows it. Pairs of both halves are found, and deleted, and get other values,
// and what takes no more room comes in. What does is refused with what to do, until there is
// memory.
func TestFullBehindAForwardWord(t *testing.T) {
	for _, o := range []index.Options{{MaxKeyBytes: 20, MaxValueBytes: 8, NodeBytes: 576}, {MaxKeyBytes: 20, MaxValueBytes: 40, NodeBytes: 576}} {
		c := pooltest.New(t, pooltest.Options{Servers: 1, Chunks: 2, ChunkBytes: 64 << 10})
		x, err := open(c.Open(t), o)
		must(t, err)
		s, err := x.newSession()
		must(t, err)
		const keys = 26 // two leaves, of which the right one is to be divided: its slot gets a node
		for i := range keys {
			must(t, s.Insert(fmt.Appendf(nil, "a%02d", i), []byte{1}))
		}
		forwardOnly(t, s, []byte("a25"), 2)
		taken := takeAll(s)
		s.SetLimit(2e9)
		modified := func([]byte, bool) ([]byte, index.Action) { return []byte{3}, index.Put }
		for i := range keys {
			k := fmt.Appendf(nil, "a%02d", i)
			if must(t, s.Modify(k, modified)); x.lay.words { // else each new value takes a record
				must(t, s.Update(k, []byte{3}))
			}
			if v, err := s.Lookup(k, nil); err != nil || string(v) != "\x03" {
				t.Errorf("%s: %v, %v", k, v, err)
			}
			if i%2 == 0 {
				must(t, s.Delete(k))
			}
		}
		n := 0
		for ; err == nil && n < 100; n++ {
			err = s.Insert(fmt.Appendf(nil, "a25%02d", n), []byte{4})
		}
		if n < 2 || !errors.Is(err, index.ErrPoolFull) || !strings.Contains(err.Error(), "delete pairs, or let the index have more memory") {
			t.Errorf("insert %d: %v", n, err)
		}
		if found, err := x.Check(); err != nil || found.Unlinked != 2 || found.Pairs != uint64(keys/2+n-1) {
			t.Errorf("%+v, %v", found, err)
		}
		for a, size := range taken {
			x.Pool.Free(a, size)
		}
		for n--; n < 100; n++ {
			must(t, s.Insert(fmt.Appendf(nil, "a25%02d", n), []byte{4}))
		}
		if found, err := x.Check(); err != nil || found.Unlinked != 0 || found.Pairs != keys/2+100 {
			t.Errorf("%+v, %v", found, err)
		}
	}
}
