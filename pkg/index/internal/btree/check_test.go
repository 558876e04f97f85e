package btree

import (
	"errors"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestChainThatLeadsLeft: an inner node is its own sibling. A survey and a check of the tree end,
// and say so.
func TestChainThatLeadsLeft(t *testing.T) {
	x, s := placed(t, nil)
	for n := range uint64(200) {
		fatal(t, s.change(number(n), number(n)))
	}
	s.Begin()
	p, err := s.descend(number(0), fence.Holding, 1)
	fatal(t, err)
	n, err := s.readInner(p.addr, 1)
	fatal(t, err)
	d := n.draft()
	d.Sibling = n.Addr
	s.PS.Write(pool.Sole, n.Addr, s.Image[:d.Build(s.Image, s.Lay, n.Addr, n.Version+1)])
	fatal(t, s.PS.Post())
	s.End()
	if err := x.Survey(func([]byte, int) error { return nil }); !errors.Is(err, index.ErrFormat) {
		t.Errorf("survey: %v", err)
	}
	if _, err := x.check(); !errors.Is(err, index.ErrFormat) {
		t.Errorf("check: %v", err)
	}
}
