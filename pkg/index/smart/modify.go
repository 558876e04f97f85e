package smart

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
)

// Modify implements index.Session. Where the key is there it is done under the leaf's lock, so
// nobody changes the pair between what change is told and what it says. Where it is not there the
// swap of the slot decides: if somebody was faster, change is asked again.
func (s *Session) Modify(key []byte, change index.Change) error {
	s.Begin()
	defer s.End()
	if err := s.lay.CheckKey(key); err != nil {
		return explain("modify", err)
	}
	for {
		err := s.modify(key, change)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, index.ErrPoolFull) || !s.awaitMemory():
			return explain("modify", err)
		}
	}
}

// modify is Modify as a part of an operation. It does not wait for memory.
func (s *Session) modify(key []byte, change index.Change) error {
	for {
		out, found, v, err := s.lockLeaf(key)
		switch {
		case err != nil:
			return err
		case found:
			return s.modifyLocked(key, change)
		case out == art.Leafed && v == whole && s.leaf.ctl.state() == moved:
			if _, err := s.provesAbsent(key, out, v); err != nil {
				return err
			}
			continue
		}
		// Copies may be old: change is told what is proved.
		if absent, err := s.provesAbsent(key, out, v); err != nil {
			return err
		} else if !absent {
			continue
		}
		value, action, err := s.lay.Decide(change, key, nil, false)
		if err != nil || action == index.Keep {
			return err
		}
		var done bool
		if out == art.Leafed {
			done, err = s.besideLeaf(key, value, v)
		} else {
			done, err = s.Link(s.setNewcomer(key, value), out)
		}
		if done || err != nil {
			return err
		}
	}
}

// modifyLocked does what change says with the locked leaf, which is in s.leaf.
func (s *Session) modifyLocked(key []byte, change index.Change) error {
	v, long := s.leaf.value()
	there := s.leaf.ctl.state() == alive
	if !there {
		s.old = s.old[:0]
	} else if !long {
		s.old = append(s.old[:0], v...)
	} else {
		// Its block is that of the value: who takes the value out has the lock.
		var ok bool
		var err error
		if s.old, ok, err = s.Blocks.AppendValue(s.old[:0], reference(v)); err != nil || !ok {
			if err == nil {
				err = fmt.Errorf("the block of leaf %v is not what it says: %w", s.leaf.at, index.ErrFormat)
			}
			if s.PS.Err() != nil {
				return err
			}
			return s.Unlock(err)
		}
	}
	value, action, err := s.lay.Decide(change, key, s.old, there)
	switch {
	case err != nil:
		return s.Unlock(err)
	case action == index.Keep:
		return s.Unlock(nil)
	}
	if late := s.Late(); late != nil { // the READ of the value, or change, took its time
		return late
	}
	if action == index.Remove {
		return s.changeLocked(s.offers(combine.Delete, key, nil))
	}
	return s.changeLocked(s.offers(combine.Upsert, key, value))
}
