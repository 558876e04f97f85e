package smart

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// single is the only child of c; 0 if it has none, or several.
func (c *copied) single() (only slot) {
	for i := range c.size() {
		if w := c.word(i); w.child() {
			if only != 0 {
				return 0
			}
			only = w
		}
	}
	return only
}

// fill puts the children of c into the slots of the image b of a node of a type. It returns the
// slot where the next one goes, unless the type is direct.
func fill(b []byte, t nodeType, c *copied) int {
	next := c.base()
	for i := range c.size() {
		w := c.word(i)
		switch {
		case !w.child():
		case i < c.base():
			place(b, t, c.base(), &next, endBranch, w)
		default:
			place(b, t, c.base(), &next, int(w.key()), w)
		}
	}
	return next
}

// place puts w into the slot of a branch.
func place(b []byte, t nodeType, base int, next *int, br int, w slot) {
	w = w.clean().withKey(branchKey(br))
	switch {
	case br == endBranch:
		putSlot(b, 0, w)
	case t == direct:
		putSlot(b, base+br, w)
	default:
		putSlot(b, *next, w)
		*next++
	}
}

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
func (s *Session) headerMerge(parent *step, c *copied, only slot) (w slot, merged bool, err error) {
	b, t := s.lower, nodeType(only.code())
	if err := s.Read(only.addr(), s.node[:t.bytes()]); err != nil {
		return 0, false, err
	}
	from := parent.node.end() + 1
	if !b.decode(s.lay, only.addr(), t, s.node) {
		return 0, false, nil
	}
	if !b.under(&c.head) {
		return 0, false, isAstray(c.Addr, &c.head, only, &b.head)
	}
	if b.end()-from > s.t.with.longestPrefix() {
		return 0, false, nil
	}
	var room [mostPrefix]byte
	p := append(room[:0], c.prefix[from-int(c.depth):c.length]...)
	p = append(p, only.key())
	p = append(p, b.prefix[c.end()+1-int(b.depth):b.length]...)
	reserved := len(s.made)
	nt := s.t.with.typeOf(b, false)
	if full, err := s.also(nt, reserved, only.addr()); full || err != nil {
		return 0, false, err
	}
	if err := s.freeze(b, b); err != nil {
		return 0, false, err
	}
	if now := s.t.with.typeOf(b, false); now != nt { // it has changed meanwhile
		nt = now
		if full, err := s.also(nt, reserved, only.addr()); full || err != nil {
			return 0, false, err
		}
	}
	last := b.single()
	if nt == 0 {
		s.giveBack()
		if last.leaf() {
			return last.clean().withKey(parent.word.key()), true, nil
		}
		return tombOf(parent.word, s.Env.Uint64()), true, nil
	}
	node := s.made[reserved]
	for _, m := range s.made[:reserved] {
		s.t.pool.Free(m.at, m.size)
	}
	s.made = append(s.made[:0], node)
	h := head{kind: nt}
	h.setPrefix(from, p)
	image := h.build(s.lay.sums, s.nodes, node.at, unit.NewVersion(s.Env))
	fill(image, nt, b)
	s.PS.Write(pool.Sole, node.at, image)
	at, _ := pack(node.at)
	return innerSlot(parent.word.key(), nt, at), true, nil
}

// also makes the node of type t, or none if that is 0, the one that is allocated behind the first
// ones in made. full: there is no memory for it, and none is allocated.
func (s *Session) also(t nodeType, first int, near pool.Addr) (full bool, err error) {
	for _, m := range s.made[first:] {
		s.t.pool.Free(m.at, m.size)
	}
	s.made = s.made[:first]
	if t == 0 {
		return false, nil
	}
	if _, _, err = s.allocate(t.bytes(), near); errors.Is(err, index.ErrPoolFull) {
		return true, nil
	}
	return false, err
}

// mergeable reports whether the only child of the node of path[l], an inner node, can have the
// prefixes of both.
func (s *Session) mergeable(l int, only slot) (bool, error) {
	var h head
	if c := s.t.cache.Get(only.addr(), s.Floor); c != nil {
		s.PS.Follows(c.Stamp)
		h = copyOf(c).head
	} else {
		b := s.node[:headBytes]
		if err := s.Read(only.addr(), b); err != nil || !h.decode(s.lay.sums, b, only.addr()) {
			return false, err
		}
	}
	if n := s.path[l].node; !h.under(&n.head) {
		return false, isAstray(n.Addr, &n.head, only, &h)
	}
	return h.end()-s.path[l-1].node.end()-1 <= s.t.with.longestPrefix(), nil
}
