package slottedtree

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
)

// Modify implements index.Session. All of it is done with the leaf's lock, so nobody else changes
// the pair between what change is told and what it says. Lookups do not wait: they see the pair as
// it was before, or what the change published.
//
// It costs what Upsert or Delete does. One that keeps the pair costs the lock with the READ, and
// the release. A value in a block is READ with the lock: one round trip more.
func (s *Session) Modify(key []byte, change index.Change) error {
	s.Begin()
	defer s.End()
	if err := s.Lay.CheckKey(key); err != nil {
		return fmt.Errorf("modify: %w", err)
	}
	for {
		value, err := s.modifyOnce(key, change)
		if !errors.Is(err, index.ErrPoolFull) || !s.mayWait(value) {
			return err
		}
	}
}

// modifyOnce is Modify, but does not wait for memory. value is what was to be put.
func (s *Session) modifyOnce(key []byte, change index.Change) (value []byte, err error) {
	var l slotted.Leaf
	if err := s.lockLeaf(&l, key); err != nil {
		return nil, fmt.Errorf("modify: %w", err)
	}
	fp := s.Lay.Fingerprint(key)
	i, e, o := l.Find(key, fp)
	if o == slotted.Torn {
		return nil, s.Unlock(fmt.Errorf("modify: leaf %v does not verify under its lock: %w", l.Addr, index.ErrFormat))
	}
	var old []byte
	found := o == slotted.Present
	if found {
		if err := s.readOld(e); err != nil {
			return nil, s.Unlock(fmt.Errorf("modify: %w", err))
		}
		old = s.old
	}
	value, action := change(old, found)
	switch {
	case action == index.Keep, action == index.Remove && !found:
		return nil, s.Unlock(nil)
	case action == index.Remove:
		return nil, s.removeLocked(&l, i, e, key, "modify")
	case action != index.Put:
		return nil, s.Unlock(fmt.Errorf("modify: %d is no action", action))
	}
	if err := s.Lay.CheckPair(key, value); err != nil {
		return nil, s.Unlock(fmt.Errorf("modify: %w", err))
	}
	if found {
		s.Blocks.Replace(e)
	} else {
		i = l.Vacant()
	}
	return value, s.putLocked(&l, i, fp, key, value, found, "modify")
}

// readOld copies the value of entry e of the locked leaf to s.old, which nothing else uses: what
// change says may be a part of it, also while the entry is made and the leaf is split. The block of
// one that is there under the lock is that of the entry: it is given up only by who takes the entry
// out.
func (s *Session) readOld(e []byte) error {
	v := s.Lay.ValueOf(e)
	if !s.Lay.HasReference(e) {
		s.old = append(s.old[:0], v...)
		return nil
	}
	var ok bool
	var err error
	s.old, ok, err = s.Blocks.AppendValue(s.old[:0], blocks.Decode(v))
	if err == nil && !ok {
		err = s.refused()
	}
	return err
}
