package chime

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index"
)

// Modify implements index.Session. All of it is done with the leaf's word held, so nobody else
// changes the pair between what change is told and what it says. Lookups do not wait: they see the
// pair as it was before, or what the change published.
func (s *session) Modify(key []byte, change index.Change) error {
	s.Begin()
	defer s.End()
	if err := s.Lay.CheckKey(key); err != nil {
		return explain("modify", err)
	}
	for {
		err := s.modifyOnce(key, change)
		switch {
		case err == nil:
			return nil
		case err == errSplit, errors.Is(err, index.ErrPoolFull) && s.AwaitMemory():
			continue
		}
		return explain("modify", err)
	}
}

// modifyOnce is Modify, but waits for no memory, and divides one leaf at most.
func (s *session) modifyOnce(key []byte, change index.Change) error {
	t, err := s.acquire(key)
	if err != nil {
		return err
	}
	i, e, was, o, err := s.match(&t.leaf, key, t.key, t.home, t.version)
	if err != nil {
		return s.Unlock(err)
	}
	if o == torn {
		return s.damaged(t)
	}
	var old []byte
	found := o == present
	if found {
		if err := s.readOld(e, was); err != nil {
			return s.Unlock(err)
		}
		old = s.old
	}
	value, action, err := s.Lay.Decide(change, key, old, found)
	switch {
	case err != nil:
		return s.Unlock(err)
	case action == index.Keep:
		return s.Unlock(nil)
	}
	if late := s.Late(); late != nil { // the READ of the value, or change, took its time
		return late
	}
	switch {
	case action == index.Remove:
		return s.removeLocked(t, i, e, key)
	case found:
		return s.replaceLocked(t, i, e, key, value)
	}
	return s.insertLocked(t, key, value)
}

// readOld copies the value of entry e of the locked leaf to s.old, which nothing else uses: what
// change says may be a part of it. value is that of a pair in a block.
func (s *session) readOld(e, value []byte) (err error) {
	if s.t.indirect {
		s.old = append(s.old[:0], value...)
		return nil
	}
	s.old, err = s.Blocks.AppendOf(s.old[:0], e)
	return err
}
