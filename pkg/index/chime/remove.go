package chime

import (
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
)

// countEvery is how many deletes from a leaf with many slots, of which all groups may have empty
// ones, there are for one that counts its pairs.
const countEvery = 8

// Delete implements index.Session. The slot can be used again at once.
func (s *session) Delete(key []byte) error {
	return s.write(key, nil, combine.Delete, "delete")
}

// deleteOnce is writeOnce of a delete.
func (s *session) deleteOnce(key []byte) error {
	c := s.offered(combine.Delete, key, nil)
	t, answered, err := s.acquireOr(key, c)
	switch {
	case err != nil:
		return err
	case answered:
		return s.Answered(c)
	}
	if done, err := s.combine(t, c); done {
		return err
	}
	i, e, _, o, err := s.match(&t.leaf, key, t.key, t.home, t.version)
	switch {
	case err != nil:
		return s.Unlock(err)
	case o == torn:
		return s.damaged(t)
	case o == absent:
		return s.Unlock(index.ErrNotFound)
	}
	return s.removeLocked(t, i, e, key)
}

// removeLocked takes key, whose entry e is in slot i, out of the locked leaf, and releases the
// word. The requests, in one list: WRITE of the empty slot, of 16 bytes; behind it WRITE of the
// home word, if that is another slot's; the release with the new own bits.
//
// Who reads the home word before its WRITE, and the slot after, finds that they do not match. No
// WRITE has both, since its words change in any order: a reader that has seen the slot as it was
// before the key hopped there would take the home word's word for it that the key is gone, and
// another one would find it in the slot afterwards. A client that dies in between leaves a slot
// that does not verify, or a home word that RebuildWord makes anew: the key is gone, or it is
// still there.
func (s *session) removeLocked(t *target, i int, e, key []byte) error {
	// With many slots the count does not show that the leaf is underfull: it is looked at now and
	// then.
	counts := t.hints.isKnown() && !(t.overflows(t.hints) && t.sparse(t.hints) && s.Env.Uint64()%countEvery == 0)
	if !counts && !t.whole {
		if h, err := s.readWhole(t); err != nil {
			return err
		} else if h == nil || !t.whole {
			return s.damaged(t)
		}
	}
	s.Blocks.Replace(e)
	t.put(i, t.version, nil)
	t.removeFromHome(t.home, i, t.version, t.key)
	s.writeSlot(t, i)
	if i != t.home {
		s.writeHome(t, t.home)
	}
	if t.whole {
		t.hints = t.hintsOf(s.table(t))
	} else {
		t.hints = t.hintsWithout(t.hints, i)
	}
	s.PS.SetOwn(hintBits, uint64(t.hints))
	if err := s.Publish(); err != nil {
		return err
	}
	return s.Tidy(key, t.addr, s.loadAfter(t))
}

// loadAfter is what is in the leaf behind a change, of which the own bits are made. Where neither
// these say how many pairs that is, nor all of the leaf was READ, it is not underfull, as far as is
// known.
func (s *session) loadAfter(t *target) btree.Load {
	switch {
	case t.whole:
		return s.t.load(s.tab.pairs())
	case s.t.overflows(t.hints):
		return s.t.load(t.n)
	}
	return s.t.load(t.hints.count())
}
