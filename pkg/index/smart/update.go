package smart

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Update implements index.Session (section 4.1.2, "In-place leaf update"). Two round trips if the
// inner nodes are in the cache and nobody else holds the leaf's lock.
func (s *Session) Update(key, value []byte) error {
	return s.write(key, value, combine.Update, "update")
}

// Upsert implements index.Session.
func (s *Session) Upsert(key, value []byte) error {
	return s.write(key, value, combine.Upsert, "upsert")
}

// write is a change of one pair. It waits for memory that is on its way back.
func (s *Session) write(key, value []byte, m combine.Mode, what string) error {
	s.Begin()
	defer s.End()
	if err := s.lay.CheckPair(key, value); err != nil {
		return explain(what, err)
	}
	for {
		err := s.writeOnce(key, value, m)
		switch {
		case err == nil || err == index.ErrNotFound || err == index.ErrExists:
			return err
		case !errors.Is(err, index.ErrPoolFull) || !s.awaitMemory():
			return explain(what, err)
		}
	}
}

// writeOnce is write as a part of an operation. It does not wait for memory.
func (s *Session) writeOnce(key, value []byte, m combine.Mode) error {
	switch m {
	case combine.Insert:
		return s.insert(key, value)
	case combine.Delete:
		return s.remove(key)
	}
	return s.put(key, value, m)
}

// put is writeOnce of an update or an upsert.
func (s *Session) put(key, value []byte, m combine.Mode) error {
	c := s.offers(m, key, value)
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
		var done bool
		switch {
		case m == combine.Upsert && out == art.Leafed:
			done, err = s.besideLeaf(key, value, v)
		case m == combine.Upsert:
			done, err = s.Link(s.setNewcomer(key, value), out)
		default:
			if done, err = s.provesAbsent(key, out, v); done && err == nil {
				return index.ErrNotFound
			}
		}
		if done || err != nil {
			return err
		}
	}
}

// provesAbsent is asked where a descent ended, at a leaf if ended says so, which is in s.leaf and
// has not the key. true: that is proved. false: the descent is to begin anew.
func (s *Session) provesAbsent(key []byte, ended art.Outcome, v verdict) (bool, error) {
	st := &s.Path[s.Level]
	switch {
	case ended == art.Leafed && v == whole && s.leaf.ctl.state() == moved:
		_, err := s.ReplaceLeaf(st, s.leaf.forward())
		return false, err
	case ended == art.Leafed && v == out:
		st.Fresh = false // it may have moved since the slot was READ
	}
	absent, _, err := s.Confirm(key, ended)
	return absent, err
}

// holding is what lockLeafOr ends with.
type holding uint8

const (
	nothing  holding = iota // no lock is held: the leaf was not found
	locked                  // the lock is held, and the leaf is in s.leaf
	answered                // no lock is held: another session made the change
)

// lockLeaf finds the leaf of key, alive or dead, and acquires its lock. If found, the lock is held
// and the leaf is in s.leaf. Else no lock is held; out says where the descent ended, and where it
// ended at a leaf, v what that is.
func (s *Session) lockLeaf(key []byte) (out art.Outcome, found bool, v verdict, err error) {
	out, got, v, err := s.lockLeafOr(key, nil)
	return out, got == locked, v, err
}

// lockLeafOr is lockLeaf, but another session of this client that has the lock may make the change
// c, unless that is nil.
func (s *Session) lockLeafOr(key []byte, c *combine.Change) (out art.Outcome, got holding, v verdict, err error) {
	for {
		if out, err = s.Seek(key); err != nil || out != art.Leafed {
			return out, nothing, v, err
		}
		w := s.Path[s.Level].Word
		b := s.leafRoom[:w.LeafBytes()]
		s.Pause()
		if made, err := s.lockOr(w.Addr(), b, c); err != nil {
			return out, nothing, v, op.Failure(err, made)
		} else if made {
			return out, answered, v, nil
		}
		v = s.leaf.open(s.lay.Sums, b, w.Addr())
		if v == whole && s.leaf.isInTree() && s.leaf.hasKey(key) {
			if late := s.Late(); late != nil {
				return out, nothing, v, late
			}
			return out, locked, v, nil
		}
		if err := s.Unlock(nil); err != nil || v != torn {
			return out, nothing, v, err
		}
		if err := s.renewTorn(key, w); err != nil {
			return out, nothing, v, err
		}
	}
}

// renewTorn is called where a descent ended at the leaf of w, which is torn. It is being written,
// or a dead mark is being written over it, and who does that may have died. So the slot is READ
// again.
func (s *Session) renewTorn(key []byte, w art.Slot) error {
	if err := s.Reread(w.Addr()); err != nil {
		return err
	}
	s.Path[s.Level].Fresh = false
	_, _, err := s.Confirm(key, art.Leafed)
	return err
}

// updateLocked puts value into the locked leaf, which is in s.leaf, and releases the lock. The
// requests, in one list:
//
//  1. WRITE of the block of a long value: nobody knows it. It is awaited if it is on another
//     server;
//  2. WRITE of the cell that does not count: nobody looks at it;
//  3. WRITE of the control word, one aligned word: the update takes effect;
//  4. WRITE of the dead mark of the block that is replaced;
//  5. release of the lock.
//
// A client that dies before 3 leaves the old value, one that dies later the new one.
func (s *Session) updateLocked(key, value []byte) error {
	l := &s.leaf
	n := len(value)
	if s.lay.InBlock(n) {
		n = referenceBytes
	}
	if !l.hasRoom(n) || !s.t.with.inPlaceLeaf && l.ctl.state() == alive {
		if done, err := s.moveLocked(key, value, l.hasRoom(n)); done || err != nil {
			return err
		}
	}
	c, err := s.content(key, value, l.at)
	if err != nil {
		return s.Refuse(err)
	}
	s.replaceBlock(key)
	i := 1 - l.ctl.cell()
	s.PS.Write(pool.Shared, l.at+pool.Addr(l.cellAt(i)), l.putCell(i, &c))
	s.PS.Write(pool.Shared, l.at+atControl, l.setControl(i, alive))
	s.PS.HandOn(l.at, l.b)
	if err := s.Blocks.Publish(l.at); err != nil {
		return err
	}
	s.Forget()
	return nil
}

// replaceBlock notes that the block of the locked leaf's value, if it has one, is replaced.
func (s *Session) replaceBlock(key []byte) {
	if v, long := s.leaf.value(); long && s.leaf.ctl.state() == alive {
		r := reference(v)
		s.Blocks.Replace(r.PutEntry(&s.lay.Codec, s.entry, key))
	}
}

// moveLocked puts value into a new leaf, since the locked one, which is in s.leaf, has no room for
// it, or values are not changed in place. With spare the leaf has room: then done is false if
// there is no memory for another one, and nothing has changed. The requests:
//
//  1. WRITE of the new leaf, and of its block: nobody knows them;
//  2. WRITE of the cell that does not count: the new leaf's slot;
//  3. WRITE of the control word, to moved: the update takes effect. Who finds the leaf goes on to
//     the new one;
//  4. CAS of the slot from the leaf to the new one, if it is on the leaf's server. By G1 who sees
//     that sees 1 and 3, so the old leaf's value is not found any more, by whichever way;
//  5. release of the lock.
//
// Where 4 is not in the list, or found another word, the CAS is made by this session afterwards, or
// by whoever changes something there next. Who wins it retires the leaf.
func (s *Session) moveLocked(key, value []byte, spare bool) (done bool, err error) {
	l := &s.leaf
	near := l.at
	c := s.setNewcomer(key, value)
	_, err = c.Allot(near)
	if err == nil {
		err = c.Queue(near)
	}
	if err != nil && spare && errors.Is(err, index.ErrPoolFull) {
		s.GiveBack()
		return false, nil
	}
	if err != nil {
		err = s.Refuse(err)
		s.Discard()
		return false, err
	}
	s.replaceBlock(key)
	i := 1 - l.ctl.cell()
	s.PS.Write(pool.Shared, l.at+pool.Addr(l.cellAt(i)), l.putForward(i, c.word))
	s.PS.Write(pool.Shared, l.at+atControl, l.setControl(i, moved))
	st := &s.Path[s.Level]
	w, beside := st.Word, s.canSwap(st)
	to := c.word.WithKey(w.Key())
	if beside {
		s.QueueSwap(st, to)
	}
	if err := s.Blocks.Publish(l.at); err != nil {
		s.Forget()
		return true, err
	}
	s.Forget()
	if beside {
		if _, won := s.Swapped(st, to); won {
			return true, s.afterwards(s.RetireChild(w))
		}
	} else if !w.Frozen() {
		// mostly the slot is as it was
		if won, err := s.ReplaceLeaf(st, c.word); won || err != nil {
			return true, s.afterwards(err)
		}
	}
	return true, s.afterwards(s.settleMoved(key, w, c.word))
}

// settleMoved makes the slot lead to the new leaf where that of w moved.
func (s *Session) settleMoved(key []byte, w, to art.Slot) error {
	for {
		there, err := s.Leads(key, w)
		if err != nil || !there {
			return err
		}
		if won, err := s.ReplaceLeaf(&s.Path[s.Level], to); won || err != nil {
			return err
		}
	}
}

// afterwards is what an operation returns that took effect, where what it does afterwards ends with
// err. That somebody else has to go on with it is no failure.
func (s *Session) afterwards(err error) error {
	if err == nil || s.PS.Err() == nil && (errors.Is(err, index.ErrTimeout) || errors.Is(err, index.ErrPoolFull)) {
		return nil
	}
	return op.Failure(err, true)
}
