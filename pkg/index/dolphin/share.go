package dolphin

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Shared updates: where values are words, who gives a key that is there another value of the same
// length does not acquire the leaf's lock word. Two round trips, without atomics (Pool.HasPresence,
// pool/presence.go):
//
//	Enter      1. WRITE of the session's presence word: the leaf; READ of the leaf's head, forward
//	              word and records
//	PostLeave  2. WRITE of the value word, if the leaf is the truth for the key, its forward word
//	              says nothing, and the record is alive; WRITE of the presence word: zero
//
// Else the list of 2 has the presence word alone, and the update takes the lock word.
//
// Who needs the leaf's values to stay as they are holds its lock word, and shuts it (shutOut):
//
//	3. WRITE of the forward word: shut; READ of all presence words, until nobody is there
//	4. READ of its values, or of one, which nobody changes now. A copy of the leaf is made, or its
//	   forward word says merging, or the one value is changed: then the forward word is cleared
//	   with the list of the release, behind the value's WRITE.
//
// By package pool either 1 finds the forward word set, or 3 waits for 2. So no WRITE of a value
// comes behind 4, and the copy has all of them. A leaf that was shut because a client died has
// sharers that entered before: who replaces it waits for them, too.
//
// What changes records, and not the leaf as a whole, does not shut it. Whoever deletes a key, or
// appends a record with a longer value, may do it between 1 and 2. The value of 2 is then WRITTEN
// to a record that is dead or moved. That record is no other key's for all the life of the memory,
// so nobody takes that for a value of another key. The update comes directly before that change,
// which took effect behind 1, so during the update. Nobody who begins afterwards finds the record
// alive. Changes of one value word by WRITEs order themselves, as words are whole (G2).
//
// The memory is a leaf until 2 is over: who shares it does not let its operation's epoch pass, and
// it was not given up when 1 READ it.
//
// A leaf is entered by its slot: who finds a forward word takes the lock word, and follows nothing.
// So nobody shares the merged leaf before it has a slot, while the left one is the truth for its
// keys still (merge.go).
//
// An update without an answer may be made until its client is fenced, over newer ones: these do not
// wait for the fence, as they would for the lock word.

// noIntentPause is how many updates take the lock word after one that found no intent slot, before
// the next one looks for one.
const noIntentPause = 256

// updateShared gives key another value without the leaf's lock word. done is false, without an
// error, if the update has to take the lock word.
func (s *Session) updateShared(key, value []byte) (done bool, err error) {
	if !s.lay.words || !s.t.with.ternaryLock {
		return false, nil
	}
	if s.noIntent > 0 {
		s.noIntent--
		return false, nil
	}
	there, err := s.SeekBound(key, false)
	for there && err == nil {
		a := s.Last().Word.Addr()
		if !s.t.Pool.HasPresence(a) {
			return false, nil
		}
		r, f, failed := s.enter(a, key, len(value))
		switch {
		case errors.Is(failed, pool.ErrNoIntent): // a lock word of a strip needs none
			s.noIntent = noIntentPause
			return false, nil
		case failed != nil:
			return false, op.Failure(failed, false)
		}
		s.Pause()
		if err := s.leave(r == right && f.is, &f, value); err != nil {
			return false, err
		}
		switch {
		case r == right && !f.is:
			return true, index.ErrNotFound
		case r != above:
			return r == right, nil
		}
		there, err = s.SeekBefore(key, false)
	}
	return false, err
}

// enter is list 1, for the leaf at a. Without an error leave follows. It reports what the leaf is
// for key, and what it says of it. right: the leaf is the truth, and takes an update of n bytes
// without its lock word, or has no such key.
func (s *Session) enter(a pool.Addr, key []byte, n int) (r reach, f found, err error) {
	if err := s.PS.Enter(a); err != nil {
		return astray, f, err
	}
	bytes := s.lay.keysEnd
	if !s.t.with.keysOnlyRead {
		bytes = s.lay.size
	}
	s.PS.Read(a, s.room[:bytes])
	if err := s.PS.Post(); err != nil {
		return astray, f, err
	}
	l := &s.leaf
	switch {
	case !l.open(s.room, a):
		return astray, f, nil
	case l.below(key, false):
		return above, f, nil
	case l.above(key, false) || l.forward() != 0:
		return astray, f, nil
	}
	f, damaged := l.find(key, s.lay.tagOf(key))
	if damaged || f.again || f.is && f.w.room() != n {
		return astray, f, nil
	}
	return right, f, nil
}

// leave is list 2, with the WRITE of a value if the leaf takes it. With an error the value is not
// WRITTEN, or that is in doubt.
func (s *Session) leave(takes bool, f *found, value []byte) error {
	late := s.PS.Late() // its caller may have given up, and no change may come later
	if takes = takes && late == nil; takes {
		s.leaf.putWord(f.n, value)
		s.writeAt(s.leaf.valueWord(f.n), wordBytes)
	}
	if err := s.PS.PostLeave(); err != nil {
		return op.Failure(err, takes)
	}
	return op.Failure(late, false)
}

// shutOut shuts the locked leaf, and returns when nobody shares it. Whatever gives up the lock word
// without another forward word opens it again; but one that was shut because a client died stays
// so. With an error the lock is released. What was READ of values before is out of date afterwards.
func (s *Session) shutOut() error {
	l := &s.leaf
	if s.shuts || !s.lay.words || !s.t.Pool.HasPresence(l.at) {
		return nil
	}
	if l.forward() == 0 {
		s.setForward(shut)
		s.shuts = true
	}
	if err := s.PS.AwaitAbsent(l.at); err != nil {
		if err = op.Failure(err, false); s.PS.Err() == nil {
			return s.Unlock(err)
		}
		return err
	}
	return nil
}

// readWords shuts the locked leaf, and READs the values of s.pairs, if values are words. Cells were
// READ with the lock word, and nobody shares those. With a place, to which the session descended,
// what was READ besides may say more of where that descent ends: sought. With an error the lock is
// released.
func (s *Session) readWords(place []byte) (sought bool, err error) {
	if !s.lay.words {
		return false, nil
	}
	if err := s.shutOut(); err != nil {
		return false, err
	}
	if place != nil {
		sought = s.QueueSlots(place)
	}
	at := s.lay.size
	for _, p := range s.pairs {
		at = min(at, s.leaf.valueWord(p.n))
	}
	if at < s.lay.size {
		s.PS.Read(s.leaf.at+pool.Addr(at), s.room[at:])
	}
	return sought, op.Failure(s.PS.Post(), false)
}

// setForward queues the WRITE of the locked leaf's forward word.
func (s *Session) setForward(to uint64) {
	s.leaf.setWord(atForward, to)
	s.writeAt(atForward, wordBytes)
	s.shuts = false
}

// openAgain queues the WRITE that opens the locked leaf again, if this session shut it.
func (s *Session) openAgain() {
	if s.shuts && s.PS.Err() == nil {
		s.setForward(0)
	}
}

// Unlock is that of package op. All of a leaf's lock words are given up by it, Late, Discard, or
// publish.
func (s *Session) Unlock(err error) error {
	s.openAgain()
	return s.Session.Unlock(err)
}

// Late is that of package op.
func (s *Session) Late() error {
	if late := s.PS.Late(); late != nil {
		return s.Unlock(op.Failure(late, false))
	}
	return nil
}

// Discard is that of package art.
func (s *Session) Discard() {
	s.openAgain()
	s.Session.Discard()
}
