package smart

import (
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Delete implements index.Session (section 4.5).
func (s *Session) Delete(key []byte) error {
	return s.write(key, nil, combine.Delete, "delete")
}

// remove is writeOnce of a delete.
func (s *Session) remove(key []byte) error {
	c := s.offers(combine.Delete, key, nil)
	for {
		out, got, v, err := s.lockLeafOr(key, c)
		switch {
		case err != nil:
			return err
		case got == answered:
			return c.Answer
		case got == locked:
			return s.changeLocked(c)
		}
		if absent, err := s.provesAbsent(key, out, v); err != nil {
			return err
		} else if absent {
			return index.ErrNotFound
		}
	}
}

// removeLocked deletes key, whose locked leaf is in s.leaf, and releases the lock. Where memory is
// short the leaf stays in the tree (short.go).
func (s *Session) removeLocked(key []byte) error {
	h := &s.t.shortage
	s.replaceBlock(key)
	if s.t.IsMemoryShort(s.Env) {
		if h.noteLeft(key) {
			return s.leaveLocked()
		}
		return s.takeOut(key)
	}
	if err := s.takeOut(key); err != nil || h.n.Load() == 0 {
		return err
	}
	return s.afterwards(s.burySome(buryTogether))
}

// takeOut makes the locked leaf, which is in s.leaf, gone, releases the lock, and takes the leaf
// out of the tree. The requests, in one list if the slot is on the leaf's server:
//
//  1. WRITE of the control word, to gone: the delete takes effect;
//  2. CAS of the slot to a tombstone: whoever sees that sees 1, by whichever way they come;
//  3. WRITE of the dead mark of the value's block;
//  4. release of the lock.
//
// Then the leaf is marked and retired by the session whose CAS took it out, and the node is
// replaced if few children are left.
func (s *Session) takeOut(key []byte) error {
	l, st := &s.leaf, &s.Path[s.Level]
	tomb := art.TombOf(st.Word, s.Env.Uint64())
	s.PS.Write(pool.Shared, l.at+atControl, l.setControl(l.ctl.cell(), gone))
	beside := s.canSwap(st)
	if beside {
		s.QueueSwap(st, tomb)
	}
	if err := s.Blocks.Publish(l.at); err != nil {
		return err
	}
	if beside {
		if _, won := s.Swapped(st, tomb); won {
			return s.afterwards(s.AfterUnlink(st.Word))
		}
	}
	return s.afterwards(s.Unlink(key, st.Word))
}

// canSwap reports whether the slot of st, which leads to the locked leaf, may be swapped in the
// list that changes the leaf.
func (s *Session) canSwap(st *art.Step) bool {
	return st.Node.Addr.Server() == s.leaf.at.Server() && !st.Word.Frozen()
}
