package art

import (
	"encoding/binary"
	"fmt"

	"github.com/dmindex/dmindex/pkg/pool"
)

// A descent goes from the root down through copies of inner nodes, whatever their age, and READs
// what is not copied. Why that may be, and what proves that a key is not there, is in
// docs/design/smart.md, "Reading".

// Step is a node on the way of a descent, and the slot where the key went on.
type Step struct {
	Node *Copy
	Idx  int  // -1: it is full, and has no slot for the key
	Word Slot // of the slot
	// the word was READ by this operation, and not frozen then; of a full node that has no slot for
	// the key, any word: so the node was in the tree
	Fresh bool
}

// isShown reports whether c, a node that was READ just now, was in the tree then as far as the slot
// of st shows, or, where there is none, as any slot does.
func (st *Step) isShown(c *Copy) bool {
	if st.Idx < 0 {
		return !c.allFrozen()
	}
	return !st.Word.Frozen()
}

// Outcome is where a descent ended.
type Outcome uint8

// Where descents end.
const (
	Vacant     Outcome = iota // no child: the slot is empty, or there is none
	Tombed                    // the slot is a tombstone
	Leafed                    // the slot leads to a leaf
	Mismatched                // the key lacks the prefix of the node where the last slot leads
)

// Last is where the last descent ended.
func (s *Session) Last() *Step { return &s.Path[s.Level] }

// Seek descends from the root.
func (s *Session) Seek(key []byte) (Outcome, error) {
	root, err := s.rootCopy()
	if err != nil {
		return Vacant, err
	}
	s.Path[0] = Step{Node: root}
	return s.descend(key, 0)
}

// rootCopy is the copy of the root, if it is not too old to be followed; else the root is READ.
func (s *Session) rootCopy() (*Copy, error) {
	if c := s.rootCopied(); c != nil {
		return c, nil
	}
	s.Count.Misses++
	if err := s.readRoot(); err != nil {
		return nil, err
	}
	c := s.Fresh.Clone()
	s.keepRoot(c)
	return c, nil
}

// descend goes on from Path[l], whose node is set.
func (s *Session) descend(key []byte, l int) (Outcome, error) {
	st := &s.Path[l]
	st.Idx, st.Word = st.Node.find(Branch(key, st.Node.End()))
	st.Fresh = false
	return s.follow(key, l)
}

// follow goes on from Path[l], whose slot is found.
func (s *Session) follow(key []byte, l int) (Outcome, error) {
	for {
		s.Level = l
		st := &s.Path[l]
		switch {
		case st.Idx < 0 || st.Word.Empty():
			return Vacant, nil
		case st.Word.Tomb():
			return Tombed, nil
		case s.t.lay.Damaged(st.Word, st.Idx < st.Node.Base()):
			return Vacant, IsDamaged(st.Node.Addr, st.Word)
		case st.Word.Leaf():
			return Leafed, nil
		}
		below := &s.Path[l+1]
		read, err := s.child(st, below)
		if err != nil {
			return Vacant, err
		}
		if below.Node == nil {
			// The node is not there any more: it was replaced.
			if l, err = s.renew(key, l); err != nil {
				return Vacant, err
			}
			continue
		}
		if !below.Node.Under(&st.Node.Outline) {
			return Vacant, IsAstray(st.Node.Addr, &st.Node.Outline, st.Word, &below.Node.Outline)
		}
		if at := below.Node.Mismatch(key); at >= 0 {
			if at <= st.Node.End() { // the way here has the bytes before
				return Vacant, IsAstray(st.Node.Addr, &st.Node.Outline, st.Word, &below.Node.Outline)
			}
			return Mismatched, nil
		}
		b := Branch(key, below.Node.End())
		if read {
			below.Idx, below.Word = s.Fresh.find(b)
			below.Fresh = below.isShown(s.Fresh)
		} else {
			below.Idx, below.Word = below.Node.find(b)
			below.Fresh = false
		}
		l++
	}
}

// child finds the node where st leads: below.Node is its copy, or nil if it was replaced. read: it
// was READ just now, and is in s.Fresh.
func (s *Session) child(st, below *Step) (read bool, err error) {
	a, t := st.Word.Addr(), NodeType(st.Word.Code())
	if h := s.t.Cache.Get(a, s.Floor); h != nil {
		if c := copyOf(h); c.Kind == t {
			s.PS.Follows(c.Stamp)
			s.Count.Hits++
			below.Node = c
			return false, nil
		}
	}
	s.Count.Misses++
	below.Node = nil
	if err := s.Read(a, s.Node[:t.Bytes()]); err != nil {
		return false, err
	}
	if !s.Fresh.Decode(&s.t.lay, a, t, s.Node) {
		return false, nil
	}
	s.Fresh.Stamp = s.PS.Stamp()
	below.Node = s.Fresh.Clone()
	s.t.Cache.Put(&below.Node.Head)
	return true, nil
}

// ReadWord READs a slot of the node of st, and keeps it in the copy.
func (s *Session) ReadWord(st *Step) (Slot, error) {
	if err := s.Read(st.Node.Addr+pool.Addr(SlotAt(st.Idx)), s.Answers[:8]); err != nil {
		return 0, err
	}
	w := Slot(binary.LittleEndian.Uint64(s.Answers))
	s.Learn(st, w)
	return w, nil
}

// renew READs the slots of the path from level l upwards, until one is not frozen or is another one
// than the descent followed. It returns the level from which the path is renewed: its word is what
// was READ. It is called where the node below l is not what Path[l] says.
func (s *Session) renew(key []byte, l int) (int, error) {
	if err := s.Retry(); err != nil {
		return 0, fmt.Errorf("node %v does not come to rest: %w", s.Path[l].Node.Addr, err)
	}
	for ; ; l-- {
		st := &s.Path[l]
		w, err := s.ReadWord(st)
		if err != nil {
			return 0, err
		}
		before := st.Word
		st.Word, st.Fresh = w, !w.Frozen()
		if !w.Frozen() || w.Clean() != before.Clean() {
			return l, nil
		}
		if l == 0 {
			if _, err := s.rootMoved(); err != nil {
				return 0, err
			}
			root, err := s.rootCopy()
			if err != nil {
				return 0, err
			}
			st.Node, st.Fresh = root, false
			st.Idx, st.Word = root.find(Branch(key, 0))
			return 0, nil
		}
	}
}

// Confirm is asked where the descent ended without the key, and READs what proves that it is not
// there. true: it was not there at some moment of this operation. false: the tree is another one
// than the copies say, and the descent ended again, at out, after a step that was READ.
func (s *Session) Confirm(key []byte, ended Outcome) (absent bool, out Outcome, err error) {
	l := s.Level
	st := &s.Path[l]
	if st.Fresh {
		return true, ended, nil
	}
	if ended == Vacant && st.Node.Kind != Direct && Branch(key, st.Node.End()) != EndBranch {
		// Any of the empty slots may have got the key.
		absent, err := s.reread(key, st)
		if err != nil || absent {
			return absent, ended, err
		}
		if !st.Word.Empty() && st.Idx >= 0 {
			out, err = s.follow(key, l)
			return false, out, err
		}
		l-- // all of it is frozen, and the key is not in it
	}
	for ; ; l-- {
		st := &s.Path[l]
		w, err := s.ReadWord(st)
		if err != nil {
			return false, ended, err
		}
		if w.Clean() != st.Word.Clean() {
			st.Word, st.Fresh = w, !w.Frozen()
			out, err = s.follow(key, l)
			return false, out, err
		}
		if !w.Frozen() {
			return true, ended, nil
		}
		if l == 0 {
			moved, err := s.rootMoved()
			if moved && err == nil {
				out, err = s.Seek(key)
			}
			return err == nil && !moved, out, err
		}
	}
}

// reread READs the node of st, which has no slot for key as far as its copy says, and finds the
// slot again. absent: the node was in the tree when it was READ, and has none.
func (s *Session) reread(key []byte, st *Step) (absent bool, err error) {
	c, f := st.Node, s.Fresh
	if err := s.Read(c.Addr, s.Node[:c.Kind.Bytes()]); err != nil {
		return false, err
	}
	// A dead mark may be over the head, not over the slots.
	f.adopt(c, s.Node)
	st.Node = s.Renew(c, s.Node)
	st.Idx, st.Word = f.find(Branch(key, c.End()))
	st.Fresh = st.isShown(f)
	return st.Fresh && (st.Idx < 0 || st.Word.Empty()), nil
}

// QueueSlots queues the READ of the node where the descent to key ended, if others may have filled
// the empty slot since its copy was made. SeekOn follows. queued: it is; with it nothing uses Node.
func (s *Session) QueueSlots(key []byte) (queued bool) {
	st := s.Last()
	n := st.Node
	if st.Idx < 0 || !st.Word.Empty() || n.Kind == Direct || Branch(key, n.End()) == EndBranch {
		return false
	}
	s.PS.Read(n.Addr, s.Node[:n.Kind.Bytes()])
	return true
}

// SeekOn goes on with the descent to key from the node that QueueSlots READ.
func (s *Session) SeekOn(key []byte) (Outcome, error) {
	st := s.Last()
	st.Node = s.Renew(st.Node, s.Node) // a dead mark may be over the head, not over the slots
	return s.descend(key, s.Level)
}
