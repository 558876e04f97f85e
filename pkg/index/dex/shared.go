package dex

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
)

// shared is a session with partitioning off. All operations are done in the memory servers, as by
// clients that share all leaves. It may use the ranges that its client has taken.
type shared struct{ *counted }

func (s shared) owns(key []byte) error {
	if err := s.x.lay.CheckKey(key); err != nil {
		return err
	}
	if s.x.ranges.Load().At(key) < 0 {
		return index.ErrNotOwner
	}
	return nil
}

func (s shared) write(key, value []byte, m mode, do func(key, value []byte) error) error {
	err := s.x.lay.CheckPair(key, value)
	if err == nil {
		err = s.owns(key)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", names[m], err)
	}
	return do(key, value)
}

// Insert implements index.Session.
func (s shared) Insert(key, value []byte) error { return s.write(key, value, insert, s.b.Insert) }

// Update implements index.Session.
func (s shared) Update(key, value []byte) error { return s.write(key, value, update, s.b.Update) }

// Upsert implements index.Session.
func (s shared) Upsert(key, value []byte) error { return s.write(key, value, upsert, s.b.Upsert) }

// Modify implements index.Session.
func (s shared) Modify(key []byte, change index.Change) error {
	if err := s.owns(key); err != nil {
		return fmt.Errorf("%s: %w", names[modify], err)
	}
	return s.b.Modify(key, change)
}

// Delete implements index.Session.
func (s shared) Delete(key []byte) error {
	if err := s.owns(key); err != nil {
		return fmt.Errorf("%s: %w", names[remove], err)
	}
	return s.b.Delete(key)
}
