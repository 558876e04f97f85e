package slottedtree

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Insert implements index.Session.
func (s *Session) Insert(key, value []byte) error {
	return s.write(key, value, combine.Insert, "insert")
}

// Update implements index.Session.
func (s *Session) Update(key, value []byte) error {
	return s.write(key, value, combine.Update, "update")
}

// Upsert implements index.Session.
func (s *Session) Upsert(key, value []byte) error {
	return s.write(key, value, combine.Upsert, "upsert")
}

// write is two round trips when the inner nodes are in the cache, nobody else holds the lock and
// the leaf has room: lock with READ, then entry and slot word with the release. A value too long
// for its entry is written to a block in the second one, and the block that it replaces is marked
// there; a third one is posted where one of the blocks is on another server than the leaf.
func (s *Session) write(key, value []byte, m combine.Mode, what string) error {
	s.Begin()
	defer s.End()
	return s.put(key, value, m, what)
}

// put is write as a part of an operation.
func (s *Session) put(key, value []byte, m combine.Mode, what string) error {
	if err := s.Lay.CheckPair(key, value); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for {
		if err := s.writeOnce(key, value, m, what); !s.again(err) {
			return err
		}
	}
}

// writeOnce is write, but does not wait for memory.
func (s *Session) writeOnce(key, value []byte, m combine.Mode, what string) error {
	fp := s.Lay.Fingerprint(key)
	var l slotted.Leaf
	c := s.offered(m, key, value)
	if done, err := s.lockOrCombine(&l, key, c, what); done || err != nil {
		return err
	}
	i, old, o := l.Find(key, fp)
	switch {
	case o == slotted.Torn:
		return s.Unlock(fmt.Errorf("%s: leaf %v does not verify under its lock: %w", what, l.Addr, index.ErrFormat))
	case o == slotted.Present && m == combine.Insert:
		return s.Unlock(index.ErrExists)
	case o == slotted.Absent && m == combine.Update:
		return s.Unlock(index.ErrNotFound)
	case o == slotted.Absent:
		i = l.Vacant()
	default:
		s.Blocks.Replace(old)
	}
	return s.putLocked(&l, i, fp, key, value, o == slotted.Present, what)
}

// putLocked puts value for key into the locked leaf: through slot i, which has the key or is empty,
// or by making room if i is negative. It releases the lock.
func (s *Session) putLocked(l *slotted.Leaf, i int, fp byte, key, value []byte, replaces bool, what string) error {
	e := s.made
	var err error
	if e == nil {
		e, err = s.Blocks.PutEntry(s.scratch, key, value, l.Addr)
	}
	if err != nil {
		return s.Unlock(fmt.Errorf("%s: %w", what, err))
	}
	if off := l.Place(&s.heap, len(e)); i >= 0 && off > 0 && !s.wholeLeaf(l) {
		if err = s.writeEntry(l, i, fp, off, e); err == nil {
			err = s.ConnectMet()
		}
	} else if s.PS.HoldsOwn() {
		err = s.Unlock(errNeedsLock)
	} else {
		err = s.makeRoom(l, e, replaces)
	}
	if err != nil {
		s.Blocks.Discard()
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// lockOrCombine locks the leaf for key, or has c, which can be nil, carried out together with
// changes of others, by this session or by another one. done: that is so, and no lock is held.
func (s *Session) lockOrCombine(l *slotted.Leaf, key []byte, c *btree.Change, what string) (done bool, err error) {
	answered, err := s.lockLeafOr(l, key, c)
	switch {
	case err != nil:
	case answered:
		done, err = true, s.Answered(c)
	default:
		done, err = s.combine(l, c)
	}
	if err == nil || err == index.ErrExists || err == index.ErrNotFound {
		return done, err
	}
	return done, explain(what, err)
}

// lockLeaf finds the leaf for key and takes its lock. When it returns an error no lock is held.
func (s *Session) lockLeaf(l *slotted.Leaf, key []byte) error {
	_, err := s.lockLeafOr(l, key, nil)
	return err
}

// lockLeafOr is lockLeaf, but another session that has the lock may carry out c, which can be nil.
// Then answered is true, and no lock is held. err is nil if the answer is in c.
func (s *Session) lockLeafOr(l *slotted.Leaf, key []byte, c *btree.Change) (answered bool, err error) {
	own := s.t.own && !s.needsLock
	s.needsLock = false
	p, err := s.Descend(key)
	if err != nil {
		return false, err
	}
	for hops := 0; ; {
		switch {
		case own:
			answered, err = s.LockOwn(p.Addr(), c)
		case c == nil:
			err = s.Lock(p.Addr())
		default:
			answered, err = s.LockOr(p.Addr(), c)
		}
		if answered || err != nil {
			return answered, err
		}
		var h *fence.Header
		if l.Open(s.Lay, p.Addr(), s.Node) {
			if !l.Below(key) && !l.Above(key) {
				return false, s.Late()
			}
			h = &l.Header
		}
		if s.PS.HoldsOwn() {
			err = s.resolveOwn(&p, h, key, &hops)
		} else {
			err = s.ResolveLocked(&p, h, key, &hops)
		}
		if err != nil {
			return false, err
		}
	}
}

// writeEntry puts entry e into free space of the locked leaf and publishes it through slot i. The
// requests, in one list:
//
//  1. WRITE of the entry, into space that no slot word points to: nobody can see it yet. Who still
//     reads an entry that was there before finds that it does not verify, and reads the leaf again.
//  2. WRITE of the slot word, one aligned word: the change takes effect at once. By G1 whoever sees
//     it sees the entry.
//  3. release of the lock: by G1 whoever gets the lock sees both.
//
// A client that dies between any two of them leaves the old value or the new one.
func (s *Session) writeEntry(l *slotted.Leaf, i int, fp byte, off int, e []byte) error {
	l.Put(i, fp, off, e)
	s.PS.Write(pool.Shared, l.Addr+pool.Addr(off), l.Bytes[off:off+len(e)])
	at := l.SlotAt(i)
	s.PS.Write(pool.Shared, l.Addr+pool.Addr(at), l.Bytes[at:at+slotted.SlotBytes])
	s.handOn(l)
	return s.Publish()
}

// Delete implements index.Session. The slot and the entry's space can be used again at once.
func (s *Session) Delete(key []byte) error {
	s.Begin()
	defer s.End()
	if err := s.Lay.CheckKey(key); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	var l slotted.Leaf
	fp := s.Lay.Fingerprint(key)
	c := s.offered(combine.Delete, key, nil)
	if done, err := s.lockOrCombine(&l, key, c, "delete"); done || err != nil {
		return err
	}
	i, old, o := l.Find(key, fp)
	switch o {
	case slotted.Torn:
		return s.Unlock(fmt.Errorf("delete: leaf %v does not verify under its lock: %w", l.Addr, index.ErrFormat))
	case slotted.Absent:
		return s.Unlock(index.ErrNotFound)
	}
	return s.removeLocked(&l, i, old, key, "delete")
}

// removeLocked takes key, whose entry is in slot i, out of the locked leaf, and releases the lock.
func (s *Session) removeLocked(l *slotted.Leaf, i int, entry, key []byte, what string) error {
	s.Blocks.Replace(entry)
	l.Remove(i)
	d := l.Load()
	var err error
	if s.wholeLeaf(l) {
		err = s.rewriteWithout(l)
	} else {
		err = s.clearSlot(l, i)
	}
	if err == nil {
		err = s.Session.Tidy(key, l.Addr, loadOf(d))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// clearSlot writes slot i of the locked leaf, which is empty now: one list of the WRITE of its
// word, which takes effect at once, and the release.
func (s *Session) clearSlot(l *slotted.Leaf, i int) error {
	at := l.SlotAt(i)
	s.PS.Write(pool.Shared, l.Addr+pool.Addr(at), l.Bytes[at:at+slotted.SlotBytes])
	s.handOn(l)
	return s.Publish()
}

// handOn lets the next session of this client that wants the locked leaf have its image with the
// lock (pool.Session.HandOn). What is queued changes it as the image is changed: an entry, its slot
// word, or both. Whoever rewrites or divides the leaf does not call it, nor does who changes
// nothing: READs follow. Nor does a design that keeps leaves. It writes some of them back without
// their locks, so there the image of a lock's holder is not all there is to say.
func (s *Session) handOn(l *slotted.Leaf) {
	if !s.t.HasLeafCache() || s.t.own {
		s.PS.HandOn(l.Addr, l.Bytes)
	}
}
