package offload

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/slottedtree"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestExecutorLooksAtLowFences lets an inner node in the memory server lead to the leaf after the
// right one: no call says anything of the key.
func TestExecutorLooksAtLowFences(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Provider: "tcp", Servers: 1, Chunks: 10, Executor: new(Executor)})
	x, err := slottedtree.Open(c.Open(t), slottedtree.Config{Options: index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256}, Design: index.Design{Name: "test"}, Cache: keepsNothing{}, ArenaBytes: CallBytes})
	if err != nil {
		t.Fatal(err)
	}
	s, err := x.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint64(300) {
		if err := s.Insert(bigEndian(n), bigEndian(n)); err != nil {
			t.Fatal(err)
		}
	}
	ask, err := NewClient(&s.Session, testDesign)
	if err != nil {
		t.Fatal(err)
	}
	key := bigEndian(100)
	s.Begin()
	p, err := s.Seek(key, fence.Holding, 1)
	if err == nil {
		err = s.Read(p.Addr(), s.Node)
	}
	if err != nil {
		t.Fatal(err)
	}
	var h fence.Header
	if !h.Decode(s.Node, s.Lay) || !btree.VerifyInner(s.Lay, &h, p.Addr(), s.Node) {
		t.Fatalf("%v is no inner node", p.Addr())
	}
	leaf, _ := btree.ChildIn(s.Lay, &h, s.Node, key)
	children := s.Node[h.End : h.End+8*h.Count]
	at := bytes.Index(children, binary.LittleEndian.AppendUint64(nil, uint64(leaf)))
	if at == 8*(h.Count-1) {
		t.Fatalf("key 100 lies in the last child of %v", p.Addr())
	}
	for _, right := range []bool{true, false} {
		w := btree.Way{Addr: p.Addr(), Level: 1}
		f, ok, err := ask.Search(&w, key)
		if err != nil || ok != right || right && f.Leaf != leaf {
			t.Errorf("right: %v; entry: found %v, %+v, %v", right, ok, f, err)
		}
		copy(children[at:at+8], children[at+8:])
		end := h.End + 8*h.Count + 8*(h.Count-1)
		s.Lay.Seal(s.Node, end, p.Addr(), h.Version)
		s.PS.Write(pool.Sole, p.Addr(), s.Node[:end])
		if err := s.PS.Post(); err != nil {
			t.Fatal(err)
		}
	}
	s.End()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
}
