package dolphin

import (
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestRenewInANodeThatIsOut: the copy of a node that others replaced leads to a leaf that is out.
// Its slot in that node is frozen, and leads there for ever. Who finds that leaves the copy.
func TestRenewInANodeThatIsOut(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{})
	open := func() *Session {
		x, err := open(c.Open(t), index.Options{MaxKeyBytes: 20, MaxValueBytes: 8, NodeBytes: 576})
		must(t, err)
		s, err := x.newSession()
		must(t, err)
		return s
	}
	s, other := open(), open()
	insert := func(from, to int) {
		for i := from; i < to; i++ {
			must(t, other.Insert(fmt.Appendf(nil, "a%05d", i*7919%50000), nil))
		}
	}
	insert(0, 100)
	key := []byte("a25000")
	_, err := s.Lookup(key, nil)
	if err != index.ErrNotFound {
		t.Fatal(err)
	}
	s.Begin()
	defer s.End()
	if there, err := s.find(key, false); err != nil || !there || s.Level == 0 {
		t.Fatal(there, s.Level, err)
	}
	place, stale := append([]byte(nil), s.leaf.low...), s.leaf.at
	insert(100, 3000)
	for n := 0; ; n++ {
		out, err := s.Seek(place)
		must(t, err)
		a := s.Last().Word.Addr()
		if out != art.Leafed || a != stale {
			if n == 0 {
				t.Error("the copy was not old")
			}
			return
		}
		must(t, s.Read(a, s.room))
		if s.leaf.open(s.room, a) {
			t.Fatal("the leaf is not out")
		}
		must(t, s.renew(s.Last()))
	}
}
