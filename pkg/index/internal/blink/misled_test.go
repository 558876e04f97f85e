package blink

import (
	"encoding/binary"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestExecutorLooksAtLowFences lets an inner node in the memory server lead to the leaf after the
// right one: no call says anything of the key.
func TestExecutorLooksAtLowFences(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Provider: "tcp", Servers: 1, Chunks: 10, Executor: new(Executor)})
	x, err := Open(c.Open(t), index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256}, index.Design{Name: "test"}, keepsNothing{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := x.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint64(300) {
		if err := s.Insert(number(n), number(n)); err != nil {
			t.Fatal(err)
		}
	}
	key := number(100)
	s.Begin()
	p, err := s.descend(key, fence.Holding, 0)
	if err == nil {
		err = s.Read(p.parent.Addr, s.node)
	}
	if err != nil {
		t.Fatal(err)
	}
	if p.child == len(p.parent.children)-1 {
		t.Fatalf("key 100 lies in the last child of %v", p.parent)
	}
	for _, right := range []bool{true, false} {
		w := Way{p.parent.Addr, 1}
		f, ok, err := s.AskEntry(&w, key)
		if err != nil || ok != right || right && f.Leaf != p.addr {
			t.Errorf("right: %v; entry: found %v, %+v, %v", right, ok, f, err)
		}
		w = Way{p.parent.Addr, 1}
		f, ok, err = s.AskLeaf(&w, key)
		if err != nil || ok != right || right && f.Leaf != p.addr {
			t.Errorf("right: %v; leaf: found %v, %+v, %v", right, ok, f, err)
		}
		var h fence.Header
		h.Decode(s.node, s.lay)
		binary.LittleEndian.PutUint64(s.node[h.End+childBytes*p.child:], uint64(p.parent.children[p.child+1]))
		end := unitEnd(s.lay, &h, s.node)
		unit.Seal(s.node, end, p.parent.Addr, h.Version)
		s.PS.Write(pool.Sole, p.parent.Addr, s.node[:end])
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
