package art

// A tree whose places are lower bounds is asked for the greatest place that is not above a key. The
// descent goes by the key's bytes for as long as slots have them. Where there is no slot for the
// next byte it turns to the next smaller child, and goes to the last leaf below that; where a
// prefix differs, to the last leaf below the node if its keys are smaller, else to the leaf before.
// It goes by copies, whatever their age: what is found is judged by what the leaf says of its
// range.
//
// A slot's leaf may begin above the key, since the last bytes of its place are in no slot. Then
// SeekBefore goes on to the leaf before it. That does not, as all of its place comes before the
// slot.
//
// Where no leaf has the key in its range a copy lacks something, and the descent is made again,
// fresh: it READs the slots of each node by which it turns, and of the one where it ends. Let such
// a node have a word that is not frozen. Then it was in the tree, and all places with its prefix
// lay below it. So which of its children is the next smaller one was true at that moment, and by
// the same of the nodes below that child, so was which leaf is the last one there, or it became
// another one since by a change that the leaf's forward word tells of.

// SeekBound descends to the leaf of the greatest place that is not above key, as far as slots and
// heads say: where the bytes behind the slot decide, it is the leaf of that slot. false: no place
// is that low.
func (s *Session) SeekBound(key []byte, fresh bool) (bool, error) {
	for {
		found, again, err := s.seekBound(key, fresh)
		if !again || err != nil {
			return found, err
		}
	}
}

// SeekBefore goes on from the leaf where a descent for key ended to the one before it. Where a node
// was replaced it is SeekBound. false: there is none.
func (s *Session) SeekBefore(key []byte, fresh bool) (bool, error) {
	found, again, err := s.before(s.Level, s.Path[s.Level].branch(), fresh, -1)
	if again && err == nil {
		return s.SeekBound(key, fresh)
	}
	return found, err
}

// seekBound is SeekBound. again: a node was replaced, and the descent begins anew.
func (s *Session) seekBound(key []byte, fresh bool) (found, again bool, err error) {
	root, err := s.rootCopy()
	if err != nil {
		return false, false, err
	}
	s.Path[0] = Step{Node: root}
	looked := -1 // the last level whose slots were READ
	for l := 0; ; {
		st := &s.Path[l]
		b := Branch(key, st.Node.End())
		st.Idx, st.Word = st.Node.find(b)
		inner := st.Idx >= 0 && st.Word.Inner()
		if inner {
			if again, err := s.enter(l); again || err != nil {
				return false, again, err
			}
			if below := s.Path[l+1].Node; below.Mismatch(key) < 0 {
				l++
				continue
			}
		}
		if fresh && looked < l {
			looked = l
			if again, err := s.look(l); again || err != nil {
				return false, again, err
			}
			continue
		}
		if inner {
			below := s.Path[l+1].Node
			if at := below.Mismatch(key); at < len(key) && key[at] > below.Prefix[at-int(below.Depth)] {
				return s.before(l+1, BehindAll, fresh, looked)
			}
		}
		if st.Idx >= 0 && st.Word.Leaf() {
			s.Level = l
			return true, false, s.sound(st)
		}
		return s.before(l, b, fresh, looked)
	}
}

// look READs the slots of the node of Path[l], and more if it is frozen. again: it was replaced.
func (s *Session) look(l int) (again bool, err error) {
	n := s.Path[l].Node
	if err := s.Read(n.Addr, s.Node[:n.Kind.Bytes()]); err != nil {
		return false, err
	}
	n.Renew(s.Node)
	if !n.allFrozen() {
		return false, nil
	}
	// It was in the tree if what leads to it was, and does.
	for l--; l >= 0; l-- {
		st := &s.Path[l]
		before := st.Word
		w, err := s.ReadWord(st)
		if err != nil {
			return false, err
		}
		if w.Clean() != before.Clean() {
			return true, s.Retry()
		}
		if !w.Frozen() {
			return false, nil
		}
	}
	return s.rootMoved()
}

// sound is an error if the word of st says what no client says.
func (s *Session) sound(st *Step) error {
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

// enter makes Path[l+1] the node where Path[l] leads. again: that was replaced, and the path is
// renewed.
func (s *Session) enter(l int) (again bool, err error) {
	st, below := &s.Path[l], &s.Path[l+1]
	if err := s.sound(st); err != nil {
		return false, err
	}
	if _, err := s.child(st, below); err != nil {
		return false, err
	}
	if below.Node == nil {
		_, err := s.renew(nil, l)
		return true, err
	}
	if !below.Node.Under(&st.Node.Header) {
		return false, IsAstray(st.Node.Addr, &st.Node.Header, st.Word, &below.Node.Header)
	}
	return false, nil
}

// before goes to the last leaf at a branch below b of Path[l], or before that node. The slots of
// the node at level looked were READ just now; -1 = of none.
func (s *Session) before(l, b int, fresh bool, looked int) (found, again bool, err error) {
	for l >= 0 {
		st := &s.Path[l]
		if fresh && l != looked {
			if again, err := s.look(l); again || err != nil {
				return false, again, err
			}
		}
		if st.Idx, st.Word = st.Node.below(b); st.Idx < 0 {
			if l--; l >= 0 {
				b = s.Path[l].branch()
			}
			continue
		}
		if st.Word.Leaf() {
			s.Level = l
			return true, false, s.sound(st)
		}
		if again, err := s.enter(l); again || err != nil {
			return false, again, err
		}
		l, b = l+1, BehindAll
	}
	return false, false, nil
}

// below is the child at the greatest branch below b, and its slot; -1 = there is none.
func (c *Copy) below(b int) (i int, w Slot) {
	i = -1
	switch {
	case b == EndBranch:
		return -1, 0
	case c.Kind == Direct:
		for k := min(b, BehindAll) - 1; k >= 0; k-- {
			if v := c.Word(c.Base() + k); v.Child() {
				return c.Base() + k, v
			}
		}
	default:
		for k := c.Base(); k < c.Size(); k++ {
			if v := c.Word(k); v.Child() && int(v.Key()) < b && (i < 0 || v.Key() > w.Key()) {
				i, w = k, v
			}
		}
		if i >= 0 {
			return i, w
		}
	}
	if v := slotOrNone(c); v.Child() {
		return 0, v
	}
	return -1, 0
}

// slotOrNone is the word of the end slot; 0 = there is no such slot.
func slotOrNone(c *Copy) Slot {
	if c.Base() == 0 {
		return 0
	}
	return c.Word(0)
}
