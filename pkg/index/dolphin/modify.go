package dolphin

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Modify implements index.Session. All of it is done with the leaf's lock word held, so nobody else
// changes the pair between what change is told and what it says. Where the key is there the leaf is
// shut, so shared updates do not change it either. Lookups do not wait. Where the leaf has no room
// for the new value others take its place, and change is asked again.
func (s *Session) Modify(key []byte, change index.Change) error {
	s.Begin()
	defer s.End()
	if err := s.lay.CheckKey(key); err != nil {
		return explain("modify", err)
	}
	for {
		err := s.modifyOnce(key, change)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, index.ErrPoolFull) || !s.awaitMemory():
			return explain("modify", err)
		}
	}
}

// modifyOnce is Modify, but waits for no memory.
func (s *Session) modifyOnce(key []byte, change index.Change) error {
	tag := s.lay.tagOf(key)
	for {
		there, err := s.lockFor(key, !s.lay.words, nil)
		if err != nil {
			return err
		}
		if !there {
			if _, action, err := s.lay.Decide(change, key, nil, false); err != nil || action == index.Keep {
				return err
			}
			if err := s.firstLeaf(); err != nil {
				return err
			}
			continue
		}
		if done, err := s.modifyLocked(key, tag, change); done || err != nil {
			return err
		}
	}
}

// modifyLocked does what change says with the locked leaf, and releases the lock. done is false if
// there was no room.
func (s *Session) modifyLocked(key []byte, tag uint64, change index.Change) (done bool, err error) {
	f, damaged := s.leaf.find(key, tag)
	if damaged || f.again {
		return true, s.Unlock(damagedRecord(s.leaf.at))
	}
	s.old = s.old[:0]
	if f.is {
		if err := s.shutOut(); err != nil {
			return true, err
		}
		if err := s.readOld(&f); err != nil {
			if s.PS.Err() != nil {
				return true, err
			}
			return true, s.Unlock(err)
		}
	}
	value, action, err := s.lay.Decide(change, key, s.old, f.is)
	switch {
	case err != nil:
		return true, s.Unlock(err)
	case action == index.Keep:
		return true, s.Unlock(nil)
	}
	if late := s.Late(); late != nil { // the READ of the value, or change, took its time
		return true, late
	}
	if action == index.Remove {
		if err := s.remove(&f); err != nil {
			return true, err
		}
		s.mergeIfSmall()
		return true, nil
	}
	return s.put(key, value, tag, &f)
}

// readOld copies the value of f to s.old. A word was not READ with the leaf, and others changed it
// until the leaf was shut. The block of a value is that of the value: who takes it out has the
// lock.
func (s *Session) readOld(f *found) error {
	if s.lay.words {
		at := s.leaf.valueWord(f.n)
		s.PS.Read(s.leaf.at+pool.Addr(at), s.room[at:][:wordBytes])
		if err := s.PS.Post(); err != nil {
			return op.Failure(err, false)
		}
	}
	v, long, _ := s.leaf.value(f.cursor, f.w)
	if !long {
		s.old = append(s.old, v...)
		return nil
	}
	r := blocks.Decode(v)
	old, ok, err := s.Blocks.AppendValue(s.old, r)
	if err == nil && !ok {
		err = s.Blocks.Refused()
	}
	s.old = old
	return err
}
