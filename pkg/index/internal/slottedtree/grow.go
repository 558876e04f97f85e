package slottedtree

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Room for pairs that are about to come, in leaves that a design keeps.

// growing is a leaf that becomes several. It implements btree.Parts.
type growing struct {
	s    *Session
	leaf slotted.Leaf // what is kept of it
	plan slotted.Plan
}

// Grow makes the leaf at a, which is kept as image, as many leaves as its pairs need together with
// those that are to come, one at least, which are sorted and between its fences. It returns how
// many there are then: their images are in Ring. One = it is only compacted, in a full pool as
// tightly as it must be. After an error that the session survives nothing was changed; ErrPoolFull:
// there is no memory. It is a part of an operation, which goes on with HoldPart and ConnectParts.
// The caller keeps all others of this client from the leaf, and what the image has is durable; it
// need not be written back.
//
// Requests: lock + READ of the leaf; those of btree.Session.DivideLeaf.
func (s *Session) Grow(a pool.Addr, image []byte, coming []slotted.Coming) (parts int, err error) {
	if err := s.Lock(a); err != nil {
		return 0, fmt.Errorf("make room in a leaf: %w", err)
	}
	var l slotted.Leaf
	g, p := &s.growing, &s.pairs
	g.s = s
	if !l.Open(s.Lay, a, s.Node) || !g.leaf.Open(s.Lay, a, image) || l.Version != g.leaf.Version || !g.leaf.Collect(p) {
		return 0, s.Unlock(fmt.Errorf("leaf %v is not what is kept of it, under its lock: %w", a, index.ErrFormat))
	}
	p.Sort()
	g.plan.Make(&g.leaf.Header, p, coming, len(s.Ring))
	n := len(p.List)
	newLast := n == 0 || item.Below(p.Key(n-1), coming[len(coming)-1].Key)
	err = s.DivideLeaf(&g.leaf.Header, newLast, g)
	if errors.Is(err, index.ErrPoolFull) && s.PS.Holds() && g.plan.Pack(&g.leaf.Header, s.Lay) {
		err = s.DivideLeaf(&g.leaf.Header, newLast, g)
	}
	if err != nil && s.PS.Holds() {
		err = s.Unlock(err)
	}
	if err != nil {
		return 0, fmt.Errorf("make room in a leaf: %w", err)
	}
	return len(g.plan.Parts), nil
}

// LeftOut is for how many pairs that were to come Grow has made no room.
func (s *Session) LeftOut() int { return s.growing.plan.Out }

// EmptyPart returns where part i begins, if Grow has made it without a pair.
func (s *Session) EmptyPart(i int) (low []byte, empty bool) {
	part := &s.growing.plan.Parts[i]
	return part.Low, part.From == part.To
}

// Count implements btree.Parts.
func (g *growing) Count() int { return len(g.plan.Parts) }

// Low implements btree.Parts.
func (g *growing) Low(i int) []byte { return g.plan.Parts[i].Low }

// Buffer implements btree.Parts.
func (g *growing) Buffer(i int) []byte { return g.s.Ring[i] }

// Build implements btree.Parts.
func (g *growing) Build(i int, a, next pool.Addr) int {
	h, part := g.leaf.Header, &g.plan.Parts[i]
	if h.Version++; i > 0 {
		h.Version, h.Low = unit.NewVersion(g.s.Env), part.Low
	}
	if i+1 < len(g.plan.Parts) {
		h.High, h.Rightmost, h.Sibling = g.plan.Parts[i+1].Low, false, next
	}
	b := g.s.Ring[i]
	n := slotted.BuildFor(b, g.s.Lay, a, &h, &g.s.pairs, part.From, part.To, part.Load)
	clear(b[n:])
	return n
}
