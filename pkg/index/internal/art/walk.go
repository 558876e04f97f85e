package art

import (
	"bytes"

	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Seer is told what a sweep's walk comes to.
type Seer interface {
	// SeeNode is told of an inner node.
	SeeNode(a pool.Addr)
	// SeeLeaf is told of a leaf's slot.
	SeeLeaf(w Slot)
}

// SeeFrom is a piece of a sweep's walk: it tells to of the nodes that this operation READs, and of
// the leaves that these lead to, from a place on, in the order of places, until it came to most of
// both, and went on by a slot at least. The next piece begins at next. more is false at the end of
// the tree.
//
// A node that is replaced meanwhile has what it had when it was frozen, so a piece sees whatever is
// in the tree during all of it, and has a place from its first one to its last one. One that is
// marked dead before it is READ says nothing: the piece begins anew. A slot's way is where its
// child's places begin, and pieces meet at such ways, so each child has its way in one of them.
func (c *Walker) SeeFrom(place []byte, most int, to Seer) (next []byte, more bool, err error) {
	for {
		if err := c.s.readRoot(); err != nil {
			return nil, false, err
		}
		p := piece{Walker: c, to: to, from: place, left: most}
		c.Path = c.Path[:0]
		again, err := p.see(nil, pool.Nil, c.s.t.RootSlot(), 0, true)
		if err != nil || !again {
			return bytes.Clone(c.Path), p.over, err
		}
		if err := c.s.Retry(); err != nil {
			return nil, false, err
		}
	}
}

// piece is a piece of a walk that is under way.
type piece struct {
	*Walker
	to   Seer
	from []byte
	left int  // nodes and leaves that may come yet
	over bool // it ended at Path
}

// see goes through the node where w leads, which is a slot of the node at a with outline above; nil
// = it is the root. Path is the way to it, slot included. tight: from has that, or is above it.
// again: the node is marked dead.
func (p *piece) see(above *Outline, a pool.Addr, w Slot, level int, tight bool) (again bool, err error) {
	if level == len(p.frames) {
		p.frames = append(p.frames, new(Frame))
	}
	f := p.frames[level]
	if err := p.s.Read(w.Addr(), p.s.Node[:NodeType(w.Code()).Bytes()]); err != nil {
		return false, err
	}
	p.left--
	if f.Take(&p.s.t.lay, w, p.s.Node); f.Dead {
		return true, nil
	}
	way := len(p.Path)
	if above != nil && !f.Under(above) {
		return false, IsAstray(a, above, w, &f.Outline)
	}
	p.Path = append(p.Path, f.Prefix[way-int(f.Depth):f.Length]...)
	n, first := len(p.Path), EndBranch
	if tight {
		switch m := item.CommonPrefix(p.Path, p.from); {
		case m == len(p.from):
			tight = false
		case m == n:
			first = int(p.from[n])
		case p.Path[m] < p.from[m]:
			p.Path = p.Path[:way]
			return false, nil // all of it comes before
		default:
			tight = false
		}
	}
	first = f.From(first, false)
	for b := first; b != BehindAll; b = f.From(b+1, false) {
		if p.Path = p.Path[:n]; b != EndBranch {
			p.Path = append(p.Path, byte(b))
		}
		if p.over = b != first && p.left <= 0; p.over {
			return false, nil
		}
		v := f.Word(b)
		switch {
		case p.s.t.lay.Damaged(v, b == EndBranch):
			return false, IsDamaged(w.Addr(), v)
		case v.Leaf():
			p.to.SeeLeaf(v)
			p.left--
		default:
			p.to.SeeNode(v.Addr())
			if again, err = p.see(&f.Outline, w.Addr(), v, level+1, tight && bytes.HasPrefix(p.from, p.Path)); again || err != nil || p.over {
				return again, err
			}
		}
	}
	p.Path = p.Path[:way]
	return false, nil
}
