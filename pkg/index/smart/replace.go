package smart

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
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
// the parent is frozen itself 4 fails, and the parent is replaced first. The root is never frozen.

// switchType replaces the node where the descent ended, and puts the pair into the copy.
func (s *Session) switchType(key, value []byte) (done bool, err error) {
	return s.replaceWith(s.Level, &addition{key, value}, false)
}

// replace replaces the node of path[l], or finds that somebody else did. The descent begins anew.
func (s *Session) replace(l int) error {
	_, err := s.replaceWith(l, nil, false)
	return err
}

// addition is a pair that is inserted with a copy; nil = none.
type addition struct{ key, value []byte }

// replaceWith is replace. done: the pair is inserted. With idle the node is left alone unless it
// has few children.
func (s *Session) replaceWith(l int, add *addition, idle bool) (done bool, err error) {
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
		return false, s.replace(l - 1)
	}
	if err := s.ReadSlots(n, s.Fresh); err != nil {
		return false, err
	}
	if idle && !s.Fresh.Sparse(&s.t.with.Techniques) && !s.Fresh.Single().Inner() {
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
func (s *Session) reserve(c *art.Copy, add bool, near pool.Addr) (art.NodeType, error) {
	t := s.t.with.TypeOf(c, add)
	if t == 0 {
		return 0, nil
	}
	_, _, err := s.Allocate(t.Bytes(), near)
	return t, err
}

// substitute makes the copy of n, whose slots c are frozen, and puts it into the parent's slot. t
// is the type of the node that was reserved for it; 0 = none was.
func (s *Session) substitute(parent *art.Step, n, c *art.Copy, t art.NodeType, add *addition) (done bool, err error) {
	before := parent.Word
	if add != nil {
		if _, w := c.Find(art.Branch(add.key, c.End())); w.Child() {
			add = nil // somebody was faster
		}
	}
	if err := s.LockNode(parent); err != nil {
		s.Discard()
		return false, err
	}
	w, below, err := s.successor(parent, c, t, &add)
	if err != nil && !errors.Is(err, index.ErrPoolFull) || w == 0 {
		s.Discard()
		return false, err
	}
	full := err
	won, err := s.publish(parent, w)
	if !won || err != nil {
		return false, errors.Join(full, err)
	}
	s.t.Cache.Drop(&n.Head)
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
	return add != nil, full
}

// successor makes what takes the place of a frozen node with slots c: a tombstone, its only leaf,
// or a copy, whose WRITE is queued. add is cleared if there is no memory for its leaf; then err
// says so as well. w is 0 if there is no memory for the copy. below is a node below that is
// replaced, too.
func (s *Session) successor(parent *art.Step, c *art.Copy, t art.NodeType, add **addition) (w, below art.Slot, err error) {
	near := c.Addr
	k, only := c.Children(), c.Single()
	switch {
	case k == 0 && *add == nil:
		s.GiveBack()
		return art.TombOf(parent.Word, s.Env.Uint64()), 0, nil
	case only.Leaf() && *add == nil:
		s.GiveBack()
		return only.Clean().WithKey(parent.Word.Key()), 0, nil
	case only.Inner() && *add == nil:
		if w, merged, err := s.headerMerge(parent, c, only); merged || err != nil {
			return w, only, err
		}
	}
	if need := s.t.with.TypeOf(c, *add != nil); t == 0 || t.Slots() < c.Base()+k+1 && need > t {
		s.GiveBack()
		if t = max(need, s.t.with.TypeFor(0)); true {
			if _, _, err := s.Allocate(t.Bytes(), near); err != nil {
				return 0, 0, err
			}
		}
	}
	node := s.Made[0]
	var leaf art.Slot
	if *add != nil {
		if leaf, err = s.makeLeaf((*add).key, (*add).value, node.At); err != nil {
			// The node is frozen, so the copy is made without it.
			for _, m := range s.Made[1:] {
				s.t.Pool.Free(m.At, m.Size)
			}
			s.Made, *add, leaf = s.Made[:1], nil, 0
			if !errors.Is(err, index.ErrPoolFull) {
				return 0, 0, err
			}
		}
	}
	h := c.Header
	h.Kind = t
	b := h.Build(s.lay.Sums, s.Nodes, node.At, unit.NewVersion(s.Env))
	n := art.PutChildren(b, t, c)
	if leaf != 0 {
		br := art.Branch((*add).key, c.End())
		art.PutChild(b, t, c.Base(), &n, br, leaf)
	}
	s.PS.Write(pool.Sole, node.At, b)
	at, _ := art.Pack(node.At)
	return art.InnerSlot(parent.Word.Key(), t, at), 0, err
}

// swingMoved puts the leaf to which the one of st moved in its place.
func (s *Session) swingMoved(st *art.Step, to art.Slot) (won bool, err error) {
	if st.Word.Frozen() {
		return false, s.replace(s.Level)
	}
	before := st.Word
	won, err = s.publish(st, to.Clean().WithKey(before.Key()))
	if !won || err != nil {
		return false, err
	}
	return true, s.RetireChild(before)
}

// replaceRoot replaces the root, which a bulk load froze. The requests are those of replace.go. add
// is inserted with it. done: it is.
func (s *Session) replaceRoot(add *addition) (done bool, err error) {
	n := s.Path[0].Node
	if moved, err := s.RootMoved(); moved || err != nil {
		return false, err
	}
	if err := s.ReadSlots(n, s.Fresh); err != nil {
		return false, err
	}
	a, _, err := s.Allocate(art.RootBytes, n.Addr)
	if err == nil {
		err = s.Freeze(n, s.Fresh)
	}
	if err != nil {
		s.Discard()
		return false, err
	}
	var full error
	b := art.BuildRoot(s.lay.Sums, s.Nodes, a, unit.NewVersion(s.Env))
	for i := range s.Fresh.Size() {
		if w := s.Fresh.Word(i); w.Child() {
			art.PutSlot(b, i, w.Clean())
		}
	}
	if add != nil {
		i, w := s.Fresh.Find(art.Branch(add.key, 0))
		if w.Child() {
			add = nil // the descent goes on there
		} else {
			leaf, err := s.makeLeaf(add.key, add.value, n.Addr)
			switch {
			case err == nil:
				art.PutSlot(b, i, leaf.WithKey(art.BranchKey(art.Branch(add.key, 0))))
			case errors.Is(err, index.ErrPoolFull):
				// The root is frozen, so the copy is made without it.
				for _, m := range s.Made[1:] {
					s.t.Pool.Free(m.At, m.Size)
				}
				s.Made, add, full = s.Made[:1], nil, err
			default:
				s.Discard()
				return false, err
			}
		}
	}
	s.PS.Write(pool.Sole, a, b)
	won, err := s.SetWay(n.Addr, a)
	return won && add != nil, errors.Join(full, err)
}
