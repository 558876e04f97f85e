package art

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// An inner node is replaced by freeze-and-copy: when it is full (node type switch, section 4.1.2),
// when it has few children left, or when somebody else began to replace it. The requests:
//
//  1. READ of the parent's slot and of the node;
//  2. CAS of each slot that is not frozen, to the same word, frozen; again where a slot has changed
//     meanwhile. From then on the node never changes: nothing is added to it, and nothing that is
//     added elsewhere is missed;
//  3. WRITE of the copy, of the type that its children take: nobody knows it;
//  4. CAS of the parent's slot, from the node to the copy;
//  5. by whoever won 4: WRITE of the dead mark over the head, and then the node is retired.
//
// Any session may do any of it at any time: all copies of a frozen node have the same children, and
// one of them wins. So a client that dies leaves a node that whoever changes it next replaces. If
// the parent is frozen itself 4 fails, and the parent is replaced first. That ends at the root,
// which only a load freezes (root.go).

// Replace replaces the node of Path[l], or finds that somebody else did. The descent begins anew.
func (s *Session) Replace(l int) error {
	_, err := s.replaceWith(l, nil, false)
	return err
}

// replaceWith is Replace. add is put into the copy; nil = none. done: it is. With idle the node is
// left alone unless it has few children.
func (s *Session) replaceWith(l int, add Newcomer, idle bool) (done bool, err error) {
	if l == 0 {
		return s.replaceRoot(add)
	}
	parent, n := &s.Path[l-1], s.Path[l].Node
	w, err := s.ReadWord(parent)
	if err != nil || w.Clean() != parent.Word.Clean() {
		return false, err // somebody replaced it
	}
	parent.Word = w
	if w.Frozen() {
		return false, s.Replace(l - 1)
	}
	if err := s.readSlots(n, s.Fresh); err != nil {
		return false, err
	}
	if idle && !s.Fresh.sparse(&s.t.with) && !s.Fresh.single().Inner() {
		return false, nil
	}
	// Memory first: a node that is frozen and cannot be replaced takes nothing in any more.
	t, err := s.reserve(s.Fresh, add != nil, n.Addr)
	if err == nil {
		err = s.Freeze(n, s.Fresh)
	}
	if err != nil {
		s.Discard()
		return false, err
	}
	s.Level = l - 1
	return s.substitute(parent, n, s.Fresh, t, add)
}

// reserve allocates the copy of c.
func (s *Session) reserve(c *Copy, add bool, near pool.Addr) (NodeType, error) {
	t := s.t.with.typeOf(c, add)
	if t == 0 {
		return 0, nil
	}
	if add {
		return s.allocateNode(t, near)
	}
	_, _, err := s.Allocate(t.Bytes(), near)
	return t, err
}

// substitute makes the copy of n, whose slots c are frozen, and puts it into the parent's slot. t
// is the type of the node that was reserved for it; 0 = none was.
func (s *Session) substitute(parent *Step, n, c *Copy, t NodeType, add Newcomer) (done bool, err error) {
	before := parent.Word
	if add != nil {
		if _, w := c.find(Branch(add.Place(), c.End())); w.Child() {
			add = nil // somebody was faster
		}
	}
	if err := s.lockNode(parent); err != nil {
		s.Discard()
		return false, err
	}
	w, below, added, err := s.successor(parent, c, t, add)
	if err != nil && !errors.Is(err, index.ErrPoolFull) || w == 0 {
		s.Discard()
		return false, err
	}
	full := err
	won, err := s.publish(parent, w)
	if !won || err != nil {
		return false, errors.Join(full, err)
	}
	s.t.Cache.Drop(&s.t.latest(n).Head)
	if !w.Inner() {
		s.t.Merges.Add(1)
	}
	if err := s.RetireChild(before); err != nil {
		return true, err
	}
	if below != 0 {
		if err := s.RetireChild(below); err != nil {
			return true, err
		}
	}
	return added, full
}

// successor makes what takes the place of a frozen node with slots c: a tombstone, its only leaf,
// or a copy, whose WRITE is queued. added: add is in it. If there is no memory
// for add, err says so, and it is made without. w is 0 if there is no memory for the copy. below is
// a node below that is replaced, too.
func (s *Session) successor(parent *Step, c *Copy, t NodeType, add Newcomer) (w, below Slot, added bool, err error) {
	near := c.Addr
	k, only := c.Children(), c.single()
	switch {
	case k == 0 && add == nil:
		s.GiveBack()
		return TombOf(parent.Word, s.Env.Uint64()), 0, false, nil
	case add == nil && s.t.with.yields(c):
		s.GiveBack()
		var room [MostPrefix + 1]byte
		return s.t.lay.WordWithPlace(only.Clean().WithKey(parent.Word.Key()), c.wayTo(only, parent.Node.End()+1, room[:0])), 0, false, nil
	case only.Inner() && add == nil:
		if w, merged, err := s.headerMerge(parent, c, only); merged || err != nil {
			return w, only, false, err
		}
	}
	if need := s.t.with.typeOf(c, add != nil); t == 0 || t.Slots() < c.Base()+k+1 && need > t {
		s.GiveBack()
		if t = max(need, s.t.with.typeFor(0)); true {
			if _, _, err := s.Allocate(t.Bytes(), near); err != nil {
				return 0, 0, false, err
			}
		}
	}
	node := s.made[0]
	var leaf Slot
	if add != nil {
		if leaf, err = s.writeNewcomer(add, node.at); err != nil {
			// The node is frozen, so the copy is made without it.
			for _, m := range s.made[1:] {
				s.free(m)
			}
			s.made, leaf = s.made[:1], 0
			if !errors.Is(err, index.ErrPoolFull) {
				return 0, 0, false, err
			}
		}
	}
	h := c.Header()
	h.Kind = t
	b := h.Build(s.t.lay.Sums, s.nodes, node.at, unit.NewVersion(s.Env))
	n := putChildren(b, t, c)
	if leaf != 0 {
		putChild(b, t, c.Base(), &n, Branch(add.Place(), c.End()), s.t.lay.hang(leaf, add.Place(), c.End()))
	}
	s.PS.Write(pool.Sole, node.at, b)
	at, _ := Pack(node.at)
	return InnerSlot(parent.Word.Key(), t, at), 0, leaf != 0, err
}

// replaceRoot replaces the root, which a bulk load froze. The requests are those of replace.go. add
// is inserted with it. done: it is.
func (s *Session) replaceRoot(add Newcomer) (done bool, err error) {
	n := s.Path[0].Node
	if moved, err := s.rootMoved(); moved || err != nil {
		return false, err
	}
	if err := s.readSlots(n, s.Fresh); err != nil {
		return false, err
	}
	a, _, err := s.Allocate(RootBytes, n.Addr)
	if err == nil {
		err = s.Freeze(n, s.Fresh)
	}
	if err != nil {
		s.Discard()
		return false, err
	}
	var full error
	b := buildRoot(s.t.lay.Sums, s.nodes, a, unit.NewVersion(s.Env))
	for i := range s.Fresh.Size() {
		if w := s.Fresh.Word(i); w.Child() {
			putSlot(b, i, w.Clean())
		}
	}
	if add != nil {
		i, w := s.Fresh.find(Branch(add.Place(), 0))
		if w.Child() {
			add = nil // the descent goes on there
		} else {
			leaf, err := s.writeNewcomer(add, n.Addr)
			switch {
			case err == nil:
				putSlot(b, i, s.t.lay.hang(leaf, add.Place(), 0))
			case errors.Is(err, index.ErrPoolFull):
				// The root is frozen, so the copy is made without it.
				for _, m := range s.made[1:] {
					s.free(m)
				}
				s.made, add, full = s.made[:1], nil, err
			default:
				s.Discard()
				return false, err
			}
		}
	}
	s.PS.Write(pool.Sole, a, b)
	won, err := s.setWay(n.Addr, a)
	return won && add != nil, errors.Join(full, err)
}
