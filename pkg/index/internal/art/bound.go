package art

import (
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/pool"
)

// A tree whose places are lower bounds is asked for the greatest place that is not above a key. The
// descent goes by the key's bytes for as long as slots have them. Where there is no slot for the
// next byte it turns to the next smaller child, and goes to the last leaf below that; where a
// prefix differs, to the last leaf below the node if its keys are smaller, else to the leaf before.
// It goes by copies, whatever their age: what is found is judged by what the leaf says of its
// range.
//
// A slot's leaf may begin above the key, since the last bytes of its place are in no slot. Of the
// first of them most slots know enough (Layout.WordWithPlace). Where it takes the leaf to see it,
// SeekBefore goes on to the one before. That does not begin above the key, as all of its place
// comes before the slot.
//
// Where no leaf has the key in its range a copy lacks something, and the descent is made again,
// fresh: it decides by words that it READs. These are those of the nodes by which it turns, and of
// the ones that it comes to from there:
//
//   - where it finds no way down to a smaller place, the slots below the key's, and the key's,
//     which has to lead where the descent came from;
//   - where it goes down, the slots from the child that it takes on.
//
// Of a node that is searched these are all, since they are in no order.
//
// What a fresh descent proves: let it end at the leaf of place p, and m be above p, and not above
// the key. Then there was a moment of this operation at which no leaf had m for its place. For m
// has the bytes of the way to the node where the descent turned, since p and the key have them. So
// there is one node among those that were READ where the ways of m and of the descent part. It was
// in the tree when it was READ: one of the words was not frozen, or the word that leads to it was
// READ then, and not frozen. If m had a leaf it was in the slot of m's next byte at that node, or
// below it; the slot was empty, or led to a node that m does not have the prefix of, or to a leaf
// with another place. A descent that finds no leaf proves the same of all places up to the key.
//
// Nodes above the one where the descent turned need no READ: what lies below a node that is in the
// tree are all places with its prefix, whatever comes in between above it.

// SeekBound descends to the leaf of the greatest place that is not above key, as far as slots and
// heads say: where the bytes behind the slot decide, it is the leaf of that slot, at Last. false:
// no place is that low.
func (s *Session) SeekBound(key []byte, fresh bool) (bool, error) {
	for {
		found, again, err := s.seekBound(key, fresh)
		if !again || err != nil {
			return found, err
		}
	}
}

// SeekBefore goes on from the leaf where SeekBound ended, which begins too high, to the one before
// it. That is the one to be found, unless somebody has changed the tree meanwhile. A scan downwards
// goes on so, too, from the leaf that begins at key to the one that ends there.
func (s *Session) SeekBefore(key []byte, fresh bool) (bool, error) {
	high := s.Last().Word.Addr()
	for {
		found, again, err := s.lastBefore(s.Level, s.Last().branch(), nil, fresh)
		if !again || err != nil {
			return found, err
		}
		if found, err = s.SeekBound(key, fresh); err != nil || !found || s.Last().Word.Addr() != high {
			return found, err
		}
	}
}

// NextLeaf goes on from the leaf where a descent ended to the one after it, or, reverse, to the one
// before it, as copies say. false: there is none, or a node was replaced; then only another descent
// says more. It is for scans that READ several leaves together, whose ranges show where one is
// missing between them.
func (s *Session) NextLeaf(reverse bool) (found bool, err error) {
	b := s.Last().branch()
	if reverse {
		found, _, err = s.lastBefore(s.Level, b, nil, false)
	} else {
		found, err = s.firstAfter(s.Level, b)
	}
	return found, err
}

// seekBound is SeekBound. again: copies were old, and the descent begins anew.
func (s *Session) seekBound(key []byte, fresh bool) (found, again bool, err error) {
	root, err := s.rootCopy()
	if err != nil {
		return false, false, err
	}
	s.Path[0] = Step{Node: root}
	for l := 0; ; l++ {
		st := &s.Path[l]
		b := Branch(key, st.Node.End())
		st.Idx, st.Word = st.Node.find(b)
		st.Fresh = false
		if st.Word.Inner() {
			if again, err := s.enterNode(l); again || err != nil {
				return false, again, err
			}
			if s.Path[l+1].Node.Mismatch(key) < 0 {
				continue
			}
		}
		v := st.Node
		if fresh {
			if v, again, err = s.readDeciding(l, b); again || err != nil {
				return false, again, err
			}
		}
		if st.Word.Inner() {
			n := s.Path[l+1].Node
			at := n.Mismatch(key)
			if at <= st.Node.End() { // the way here has the bytes before
				return false, false, IsAstray(st.Node.Addr, &st.Node.Outline, st.Word, &n.Outline)
			}
			if at < len(key) && key[at] > n.Prefix()[at-int(n.Depth)] {
				return s.lastBefore(l+1, BehindAll, nil, fresh)
			}
		}
		if st.Word.Leaf() && !s.t.lay.isAbove(st.Word, suffix(key, st.Node.End()+1)) {
			s.Level = l
			return true, false, s.checkWord(st)
		}
		return s.lastBefore(l, b, v, fresh)
	}
}

// lastBefore goes to the last leaf at a branch below b of Path[l], or before that node. v is what
// is known of the node's slots; nil = what copies say, or, fresh, what is READ.
func (s *Session) lastBefore(l, b int, v *Copy, fresh bool) (found, again bool, err error) {
	for {
		st := &s.Path[l]
		if v == nil {
			v = st.Node
			if fresh {
				if v, again, err = s.readDeciding(l, b); again || err != nil {
					return false, again, err
				}
			}
		}
		i, w := v.below(b)
		v = nil
		if i < 0 {
			if l == 0 {
				return false, false, nil
			}
			l--
			b = s.Path[l].branch()
			continue
		}
		st.Idx, st.Word, st.Fresh = i, w, fresh && !w.Frozen()
		if w.Leaf() {
			s.Level = l
			return true, false, s.checkWord(st)
		}
		if again, err := s.enterNode(l); again || err != nil {
			return false, again, err
		}
		l, b = l+1, BehindAll
	}
}

// firstAfter goes to the first leaf at a branch above b of Path[l], or after that node, as copies
// say.
func (s *Session) firstAfter(l, b int) (bool, error) {
	for {
		st := &s.Path[l]
		i, w := st.Node.above(b)
		if i < 0 {
			if l == 0 {
				return false, nil
			}
			l--
			b = s.Path[l].branch()
			continue
		}
		st.Idx, st.Word, st.Fresh = i, w, false
		if w.Leaf() {
			s.Level = l
			return true, s.checkWord(st)
		}
		if again, err := s.enterNode(l); again || err != nil {
			return false, err
		}
		l, b = l+1, BeforeAll
	}
}

// readDeciding READs the slots of the node of Path[l] by which a descent decides that comes there
// by branch b, or from above if that is BehindAll: v has them, and the copy. again: the node was
// not in the tree any more, or the slot of b does not lead where the descent went.
func (s *Session) readDeciding(l, b int) (v *Copy, again bool, err error) {
	st := &s.Path[l]
	n, from, to := st.Node, 0, st.Node.Size()
	if n.Kind == Direct {
		to = n.Base() + min(b, Highest) + 1
		from, _ = n.below(b)
		from = max(from, 0)
		clear(s.Node[HeadBytes:SlotAt(n.Size())])
	}
	for {
		read := s.Node[SlotAt(from):SlotAt(to)]
		if err := s.Read(n.Addr+pool.Addr(SlotAt(from)), read); err != nil {
			return nil, false, err
		}
		n = s.RenewFrom(n, from, read)
		st.Node = n
		if allFrozen(read) {
			if is, err := s.leadsTo(l); err != nil || !is {
				return nil, true, err
			}
		}
		v = s.Fresh
		v.adopt(n, s.Node)
		if i, _ := v.below(b); i >= 0 || from == 0 {
			break
		}
		from, to = 0, from // the child that the copy has is out: all that is below it
	}
	if b == BehindAll {
		return v, false, nil
	}
	_, w := v.find(b)
	if w.Clean() != st.Word.Clean() {
		return nil, true, s.Retry()
	}
	st.Word, st.Fresh = w, !w.Frozen()
	return v, false, nil
}

// allFrozen reports whether all slots that were READ to b are frozen.
func allFrozen(b []byte) bool {
	for i := range len(b) / SlotBytes {
		if !Slot(binary.LittleEndian.Uint64(b[i*SlotBytes:])).Frozen() {
			return false
		}
	}
	return true
}

// leadsTo reports whether the node of Path[l], of which slots that were READ are frozen, is in the
// tree: it is if what leads to it does so, and is.
func (s *Session) leadsTo(l int) (bool, error) {
	for l--; l >= 0; l-- {
		st := &s.Path[l]
		before := st.Word
		w, err := s.ReadWord(st)
		if err != nil {
			return false, err
		}
		if w.Clean() != before.Clean() {
			return false, s.Retry()
		}
		if !w.Frozen() {
			return true, nil
		}
	}
	moved, err := s.rootMoved()
	return !moved, err
}

// checkWord is an error if the word of st says what no client says.
func (s *Session) checkWord(st *Step) error {
	if s.t.lay.Damaged(st.Word, st.Idx < st.Node.Base()) {
		return IsDamaged(st.Node.Addr, st.Word)
	}
	return nil
}

// branch is that of the slot of st.
func (st *Step) branch() int {
	if st.Idx < st.Node.Base() {
		return EndBranch
	}
	return int(st.Word.Key())
}

// enterNode makes Path[l+1] the node where Path[l] leads. again: that was replaced, and the path is
// renewed. Where no key bounds the way down the longest one does: for nodes of longer ones, which
// no client makes, the path has no room.
func (s *Session) enterNode(l int) (again bool, err error) {
	st, below := &s.Path[l], &s.Path[l+1]
	if err := s.checkWord(st); err != nil {
		return false, err
	}
	if _, err := s.child(st, below); err != nil {
		return false, err
	}
	if below.Node == nil {
		_, err := s.renew(nil, l)
		return true, err
	}
	if !below.Node.Under(&st.Node.Outline) || below.Node.End() > s.t.longest {
		return false, IsAstray(st.Node.Addr, &st.Node.Outline, st.Word, &below.Node.Outline)
	}
	return false, nil
}
