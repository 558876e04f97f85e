package smart

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
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
func (s *Session) headerMerge(parent *step, c *art.Copy, only art.Slot) (w art.Slot, merged bool, err error) {
	b, t := s.lower, art.NodeType(only.Code())
	if err := s.Read(only.Addr(), s.node[:t.Bytes()]); err != nil {
		return 0, false, err
	}
	from := parent.node.End() + 1
	if !b.Decode(&s.lay.Layout, only.Addr(), t, s.node) {
		return 0, false, nil
	}
	if !b.Under(&c.Header) {
		return 0, false, isAstray(c.Addr, &c.Header, only, &b.Header)
	}
	if b.End()-from > s.t.with.LongestPrefix() {
		return 0, false, nil
	}
	var room [art.MostPrefix]byte
	p := append(room[:0], c.Prefix[from-int(c.Depth):c.Length]...)
	p = append(p, only.Key())
	p = append(p, b.Prefix[c.End()+1-int(b.Depth):b.Length]...)
	reserved := len(s.made)
	nt := s.t.with.TypeOf(b, false)
	if full, err := s.also(nt, reserved, only.Addr()); full || err != nil {
		return 0, false, err
	}
	if err := s.freeze(b, b); err != nil {
		return 0, false, err
	}
	if now := s.t.with.TypeOf(b, false); now != nt { // it has changed meanwhile
		nt = now
		if full, err := s.also(nt, reserved, only.Addr()); full || err != nil {
			return 0, false, err
		}
	}
	last := b.Single()
	if nt == 0 {
		s.giveBack()
		if last.Leaf() {
			return last.Clean().WithKey(parent.word.Key()), true, nil
		}
		return art.TombOf(parent.word, s.Env.Uint64()), true, nil
	}
	node := s.made[reserved]
	for _, m := range s.made[:reserved] {
		s.t.pool.Free(m.at, m.size)
	}
	s.made = append(s.made[:0], node)
	h := art.Header{Kind: nt}
	h.SetPrefix(from, p)
	image := h.Build(s.lay.Sums, s.nodes, node.at, unit.NewVersion(s.Env))
	art.PutChildren(image, nt, b)
	s.PS.Write(pool.Sole, node.at, image)
	at, _ := art.Pack(node.at)
	return art.InnerSlot(parent.word.Key(), nt, at), true, nil
}

// also makes the node of type t, or none if that is 0, the one that is allocated behind the first
// ones in made. full: there is no memory for it, and none is allocated.
func (s *Session) also(t art.NodeType, first int, near pool.Addr) (full bool, err error) {
	for _, m := range s.made[first:] {
		s.t.pool.Free(m.at, m.size)
	}
	s.made = s.made[:first]
	if t == 0 {
		return false, nil
	}
	if _, _, err = s.allocate(t.Bytes(), near); errors.Is(err, index.ErrPoolFull) {
		return true, nil
	}
	return false, err
}

// mergeable reports whether the only child of the node of path[l], an inner node, can have the
// prefixes of both.
func (s *Session) mergeable(l int, only art.Slot) (bool, error) {
	var h art.Header
	if c := s.t.cache.Get(only.Addr(), s.Floor); c != nil {
		s.PS.Follows(c.Stamp)
		h = art.CopyOf(c).Header
	} else {
		b := s.node[:art.HeadBytes]
		if err := s.Read(only.Addr(), b); err != nil || !h.Decode(s.lay.Sums, b, only.Addr()) {
			return false, err
		}
	}
	if n := s.path[l].node; !h.Under(&n.Header) {
		return false, isAstray(n.Addr, &n.Header, only, &h)
	}
	return h.End()-s.path[l-1].node.End()-1 <= s.t.with.LongestPrefix(), nil
}
