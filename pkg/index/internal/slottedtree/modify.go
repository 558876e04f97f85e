package slottedtree

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
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
		if err := s.modifyOnce(key, change); !s.again(err) {
			return err
		}
	}
}

// modifyOnce is Modify, but does not wait for memory.
func (s *Session) modifyOnce(key []byte, change index.Change) (err error) {
	var l slotted.Leaf
	if err := s.lockLeaf(&l, key); err != nil {
		return fmt.Errorf("modify: %w", err)
	}
	fp := s.Lay.Fingerprint(key)
	i, e, o := l.Find(key, fp)
	if o == slotted.Torn {
		return s.Unlock(fmt.Errorf("modify: leaf %v does not verify under its lock: %w", l.Addr, index.ErrFormat))
	}
	var old []byte
	found := o == slotted.Present
	if found {
		// nothing else uses s.old: what change says may be a part of it, also while the entry is
		// made and the leaf is split
		if s.old, err = s.Blocks.AppendOf(s.old[:0], e); err != nil {
			return s.Unlock(fmt.Errorf("modify: %w", err))
		}
		old = s.old
	}
	value, action, err := s.Lay.Decide(change, key, old, found)
	switch {
	case err != nil:
		return s.Unlock(fmt.Errorf("modify: %w", err))
	case action == index.Keep:
		return s.Unlock(nil)
	}
	if late := s.Late(); late != nil { // the READ of the value, or change, took its time
		return fmt.Errorf("modify: %w", late)
	}
	switch {
	case action == index.Remove:
		return s.removeLocked(&l, i, e, key, "modify")
	case found:
		s.Blocks.Replace(e)
	default:
		i = l.Vacant()
	}
	return s.putLocked(&l, i, fp, key, value, found, "modify")
}
