package smart

import (
	"encoding/binary"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/pool"
)

// A descent goes from the root down through copies of inner nodes, whatever their age, and READs
// what is not copied. Why that may be, and what proves that a key is not there, is in
// docs/design/smart.md, "Reading".

// step is a node on the way of a descent, and the slot where the key went on.
type step struct {
	node *art.Copy
	idx  int      // -1: it is full, and has no slot for the key
	word art.Slot // of the slot
	// the word was READ by this operation, and not frozen then; of a full node that has no slot for
	// the key, any word: so the node was in the tree
	fresh bool
}

// shows reports whether c, a node that was READ just now, was in the tree then as far as the slot
// of st shows, or, where there is none, as any slot does.
func (st *step) shows(c *art.Copy) bool {
	if st.idx < 0 {
		return !c.AllFrozen()
	}
	return !st.word.Frozen()
}

// outcome is where a descent ended.
type outcome uint8

const (
	vacant     outcome = iota // no child: the slot is empty, or there is none
	tombed                    // the slot is a tombstone
	leafed                    // the slot leads to a leaf
	mismatched                // the key lacks the prefix of the node where the last slot leads
)

// seek descends from the root.
func (s *inner) seek(key []byte) (outcome, error) {
	root, err := s.rootCopy()
	if err != nil {
		return vacant, err
	}
	s.path[0] = step{node: root}
	return s.descend(key, 0)
}

// rootCopy is the copy of the root, if it is not too old to be followed; else the root is READ.
func (s *inner) rootCopy() (*art.Copy, error) {
	if c := s.rootCopied(); c != nil {
		return c, nil
	}
	s.Count.Misses++
	if err := s.readRoot(); err != nil {
		return nil, err
	}
	c := s.fresh.Clone()
	s.keepRoot(c)
	return c, nil
}

// descend goes on from path[l], whose node is set.
func (s *inner) descend(key []byte, l int) (outcome, error) {
	st := &s.path[l]
	st.idx, st.word = st.node.Find(art.Branch(key, st.node.End()))
	st.fresh = false
	return s.follow(key, l)
}

// follow goes on from path[l], whose slot is found.
func (s *inner) follow(key []byte, l int) (outcome, error) {
	for {
		s.level = l
		st := &s.path[l]
		switch {
		case st.idx < 0 || st.word.Empty():
			return vacant, nil
		case st.word.Tomb():
			return tombed, nil
		case s.t.lay.Damaged(st.word, st.idx < st.node.Base()):
			return vacant, isDamaged(st.node.Addr, st.word)
		case st.word.Leaf():
			return leafed, nil
		}
		below := &s.path[l+1]
		read, err := s.child(st, below)
		if err != nil {
			return vacant, err
		}
		if below.node == nil {
			// What is there is not the node: it was replaced.
			if l, err = s.renew(key, l); err != nil {
				return vacant, err
			}
			continue
		}
		if !below.node.Under(&st.node.Header) {
			return vacant, isAstray(st.node.Addr, &st.node.Header, st.word, &below.node.Header)
		}
		if at := below.node.Mismatch(key); at >= 0 {
			if at <= st.node.End() { // the way here has the bytes before
				return vacant, isAstray(st.node.Addr, &st.node.Header, st.word, &below.node.Header)
			}
			return mismatched, nil
		}
		b := art.Branch(key, below.node.End())
		if read {
			below.idx, below.word = s.fresh.Find(b)
			below.fresh = below.shows(s.fresh)
		} else {
			below.idx, below.word = below.node.Find(b)
			below.fresh = false
		}
		l++
	}
}

// child finds the node where st leads: below.node is its copy, or nil if it was replaced. read: it
// was READ just now, and is in s.fresh.
func (s *inner) child(st, below *step) (read bool, err error) {
	a, t := st.word.Addr(), art.NodeType(st.word.Code())
	if h := s.t.cache.Get(a, s.Floor); h != nil {
		if c := art.CopyOf(h); c.Kind == t {
			s.PS.Follows(c.Stamp)
			s.Count.Hits++
			below.node = c
			return false, nil
		}
	}
	s.Count.Misses++
	below.node = nil
	if err := s.Read(a, s.node[:t.Bytes()]); err != nil {
		return false, err
	}
	if !s.fresh.Decode(&s.t.lay, a, t, s.node) {
		return false, nil
	}
	s.fresh.Stamp = s.PS.Stamp()
	below.node = s.fresh.Clone()
	s.t.cache.Put(&below.node.Head)
	return true, nil
}

// readWord READs a slot of the node of st, and keeps it in the copy.
func (s *inner) readWord(st *step) (art.Slot, error) {
	if err := s.Read(st.node.Addr+pool.Addr(art.SlotAt(st.idx)), s.words[:8]); err != nil {
		return 0, err
	}
	w := art.Slot(binary.LittleEndian.Uint64(s.words))
	st.node.Store(st.idx, w)
	return w, nil
}

// renew READs the slots of the path from level l upwards, until one is not frozen or is another one
// than the descent followed. It returns the level from which the path is renewed: its word is what
// was READ. It is called where the node below l is not what path[l] says.
func (s *inner) renew(key []byte, l int) (int, error) {
	if err := s.Retry(); err != nil {
		return 0, fmt.Errorf("node %v does not come to rest: %w", s.path[l].node.Addr, err)
	}
	for ; ; l-- {
		st := &s.path[l]
		w, err := s.readWord(st)
		if err != nil {
			return 0, err
		}
		before := st.word
		st.word, st.fresh = w, !w.Frozen()
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
			st.node, st.fresh = root, false
			st.idx, st.word = root.Find(art.Branch(key, 0))
			return 0, nil
		}
	}
}

// confirm is asked where the descent ended without the key, and READs what proves that it is not
// there. true: it was not there at some moment of this operation. false: the tree is another one
// than the copies say, and the descent ended again, at out, after a step that was READ.
func (s *inner) confirm(key []byte, ended outcome) (absent bool, out outcome, err error) {
	l := s.level
	st := &s.path[l]
	if st.fresh {
		return true, ended, nil
	}
	if ended == vacant && st.node.Kind != art.Direct && art.Branch(key, st.node.End()) != art.EndBranch {
		// Any of the empty slots may have got the key.
		absent, err := s.reread(key, st)
		if err != nil || absent {
			return absent, ended, err
		}
		if !st.word.Empty() && st.idx >= 0 {
			out, err = s.follow(key, l)
			return false, out, err
		}
		l-- // all of it is frozen, and the key is not in it
	}
	for ; ; l-- {
		st := &s.path[l]
		w, err := s.readWord(st)
		if err != nil {
			return false, ended, err
		}
		if w.Clean() != st.word.Clean() {
			st.word, st.fresh = w, !w.Frozen()
			out, err = s.follow(key, l)
			return false, out, err
		}
		if !w.Frozen() {
			return true, ended, nil
		}
		if l == 0 {
			moved, err := s.rootMoved()
			if moved && err == nil {
				out, err = s.seek(key)
			}
			return err == nil && !moved, out, err
		}
	}
}

// reread READs the node of st, which has no slot for key as far as its copy says, and finds the
// slot again. absent: the node was in the tree when it was READ, and has none.
func (s *inner) reread(key []byte, st *step) (absent bool, err error) {
	c := st.node
	if err := s.Read(c.Addr, s.node[:c.Kind.Bytes()]); err != nil {
		return false, err
	}
	f := s.fresh
	// A dead mark may be over the head, not over the slots.
	c.Renew(s.node)
	f.Header, f.Ends, f.Addr = c.Header, c.Ends, c.Addr
	f.Adopt(s.node)
	st.idx, st.word = f.Find(art.Branch(key, c.End()))
	st.fresh = st.shows(f)
	return st.fresh && (st.idx < 0 || st.word.Empty()), nil
}
