package art

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// headerMerge undoes a header split: a frozen node with slots c has one child left, an inner node.
// A copy of that takes the place of both, with the prefixes of both and the byte between. The
// requests, behind those that froze the upper node:
//
//  1. READ of the lower node, which is in the tree as long as the upper one is: its parent's slot
//     is frozen;
//  2. CAS of each of its slots, to the same word, frozen;
//  3. WRITE of the copy.
//
// Then the parent's slot is swapped, as for any frozen node. A session that finds no memory, or
// finds the upper node frozen and comes to it later, may make a copy of the upper node alone. Then
// the lower one is below that, frozen, and is replaced by whoever changes it next.
//
// merged is false if the prefixes are too long for one node, or there is no memory.
func (s *Session) headerMerge(parent *Step, c *Copy, only Slot) (w Slot, merged bool, err error) {
	b, t := s.lower, NodeType(only.Code())
	if err := s.Read(only.Addr(), s.Node[:t.Bytes()]); err != nil {
		return 0, false, err
	}
	from := parent.Node.End() + 1
	if !b.Decode(&s.t.lay, only.Addr(), t, s.Node) {
		return 0, false, nil
	}
	if !b.Under(&c.Outline) {
		return 0, false, IsAstray(c.Addr, &c.Outline, only, &b.Outline)
	}
	if b.End()-from > s.t.with.longestPrefix() {
		return 0, false, nil
	}
	var room [MostPrefix]byte
	p := append(c.wayTo(only, from, room[:0]), b.Prefix()[c.End()+1-int(b.Depth):]...)
	reserved := len(s.made)
	nt := s.t.with.typeOf(b, false)
	if full, err := s.makeAlso(nt, reserved, only.Addr()); full || err != nil {
		return 0, false, err
	}
	if err := s.Freeze(b, b); err != nil {
		return 0, false, err
	}
	if now := s.t.with.typeOf(b, false); now != nt { // it has changed meanwhile
		nt = now
		if full, err := s.makeAlso(nt, reserved, only.Addr()); full || err != nil {
			return 0, false, err
		}
	}
	last := b.single()
	if nt == 0 {
		s.GiveBack()
		if last.Leaf() {
			return s.t.lay.WordWithPlace(last.Clean().WithKey(parent.Word.Key()), p), true, nil
		}
		return TombOf(parent.Word, s.Env.Uint64()), true, nil
	}
	node := s.made[reserved]
	for _, m := range s.made[:reserved] {
		s.free(m)
	}
	s.made = append(s.made[:0], node)
	h := Header{Outline: Outline{Kind: nt}}
	h.setPrefix(from, p)
	image := h.Build(s.t.lay.Sums, s.nodes, node.at, unit.NewVersion(s.Env))
	putChildren(image, nt, b)
	s.PS.Write(pool.Sole, node.at, image)
	at, _ := Pack(node.at)
	return InnerSlot(parent.Word.Key(), nt, at), true, nil
}

// makeAlso makes the node of type t, or none if that is 0, the one that is allocated behind the
// first ones in made. full: there is no memory for it, and none is allocated.
func (s *Session) makeAlso(t NodeType, first int, near pool.Addr) (full bool, err error) {
	for _, m := range s.made[first:] {
		s.free(m)
	}
	s.made = s.made[:first]
	if t == 0 {
		return false, nil
	}
	if _, _, err = s.Allocate(t.Bytes(), near); errors.Is(err, index.ErrPoolFull) {
		return true, nil
	}
	return false, err
}

// mergeable reports whether the only child of the node of Path[l], an inner node, can have the
// prefixes of both.
func (s *Session) mergeable(l int, only Slot) (bool, error) {
	var h Header
	if c := s.t.Cache.Get(only.Addr(), s.Floor); c != nil {
		s.PS.Follows(c.Stamp)
		h.Outline = copyOf(c).Outline
	} else {
		b := s.Node[:HeadBytes]
		if err := s.Read(only.Addr(), b); err != nil || !h.Decode(s.t.lay.Sums, b, only.Addr()) {
			return false, err
		}
	}
	if n := s.Path[l].Node; !h.Under(&n.Outline) {
		return false, IsAstray(n.Addr, &n.Outline, only, &h.Outline)
	}
	return h.End()-s.Path[l-1].Node.End()-1 <= s.t.with.longestPrefix(), nil
}
