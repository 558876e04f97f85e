package smart

import (
	"encoding/binary"
	"errors"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Delete implements index.Session (section 4.5).
func (s *Session) Delete(key []byte) error {
	s.Begin()
	defer s.End()
	if err := s.lay.CheckKey(key); err != nil {
		return explain("delete", err)
	}
	for {
		err := s.remove(key)
		switch {
		case err == nil || err == index.ErrNotFound:
			return err
		case !errors.Is(err, index.ErrPoolFull) || !s.awaitMemory():
			return explain("delete", err)
		}
	}
}

// remove is Delete as a part of an operation.
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
		if absent, err := s.lacks(key, out, v); err != nil {
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
	if h.short(s.Env) {
		if h.leave(key) {
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
	beside := s.beside(st)
	if beside {
		s.PS.CompareSwap(st.Node.Addr+pool.Addr(art.SlotAt(st.Idx)), uint64(st.Word), uint64(tomb), s.Answers[:8])
	}
	if err := s.Blocks.Publish(l.at); err != nil {
		return err
	}
	if !beside {
		return s.afterwards(s.unlink(key, st.Word))
	}
	found := art.Slot(binary.NativeEndian.Uint64(s.Answers))
	if found != st.Word {
		st.Node.Store(st.Idx, found)
		return s.afterwards(s.unlink(key, st.Word))
	}
	st.Node.Store(st.Idx, tomb)
	return s.afterwards(s.afterUnlink(st.Word))
}

// beside reports whether the slot of st, which leads to the locked leaf, may be swapped in the list
// that changes the leaf.
func (s *Session) beside(st *art.Step) bool {
	return st.Node.Addr.Server() == s.leaf.at.Server() && !st.Word.Frozen()
}

// unlink takes the leaf of slot w, which is gone, out of the tree, unless somebody else does.
func (s *Session) unlink(key []byte, w art.Slot) error {
	for {
		there, err := s.leads(key, w)
		if err != nil || !there {
			return err
		}
		st := &s.Path[s.Level]
		before := st.Word
		if before.Frozen() {
			if err := s.replace(s.Level); err != nil {
				return err
			}
			continue
		}
		won, err := s.publish(st, art.TombOf(before, s.Env.Uint64()))
		if err != nil {
			return err
		}
		if won {
			return s.afterUnlink(before)
		}
	}
}

// leads descends to key and reports whether the slot there leads to the leaf of w. If not, that is
// proved: the leaf is out of the tree.
func (s *Session) leads(key []byte, w art.Slot) (bool, error) {
	for {
		out, err := s.Seek(key)
		if err != nil {
			return false, err
		}
		if out == art.Leafed && s.Path[s.Level].Word.Addr() == w.Addr() {
			return true, nil
		}
		if proved, _, err := s.Confirm(key, out); proved || err != nil {
			return false, err
		}
	}
}

// afterUnlink retires the leaf of slot w, which this session took out of the node where its descent
// ended, and replaces that if few children are left.
//
// A copy may have children that other clients took out lately. Who goes by copies alone leaves
// nodes without children behind, for as long as nobody deletes below them. So the node is READ in
// the round trip of the dead mark, mostly (looks).
func (s *Session) afterUnlink(w art.Slot) error {
	n := s.Path[s.Level].Node
	looks := s.looks(n)
	if looks {
		s.PS.Read(n.Addr, s.Node[:n.Kind.Bytes()])
	}
	if err := s.RetireChild(w); err != nil {
		return err
	}
	if looks {
		n.Renew(s.Node)
	}
	return s.tidy(s.Level)
}

// looks reports whether a node of which a child was taken out is to be READ: a small one each time,
// a larger one now and then. A larger one has many children, as far as its copy says, so that many
// deletes have to come, of which one READs it before all of them are gone.
func (s *Session) looks(n *art.Copy) bool {
	return n.Kind.Bytes() <= alwaysRead || s.Env.Uint64()%lookEvery == 0
}

const (
	alwaysRead = 256 // bytes of a node that is READ each time
	lookEvery  = 32
)

// tidy replaces the node of path[l] if it has few children, and then looks at those above it.
func (s *Session) tidy(l int) error {
	for first := l; l > 0; l-- {
		n := s.Path[l].Node
		if l < first && s.looks(n) {
			if err := s.Read(n.Addr, s.Node[:n.Kind.Bytes()]); err != nil {
				return err
			}
			n.Renew(s.Node)
		}
		if !n.Sparse(&s.t.with.Techniques) {
			only := n.Single()
			if !only.Inner() {
				return nil
			}
			if ok, err := s.mergeable(l, only); err != nil || !ok {
				return err
			}
		}
		if _, err := s.replaceWith(l, nil, true); err != nil {
			return err
		}
	}
	return nil
}
