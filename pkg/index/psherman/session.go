package psherman

import (
	"bytes"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/ranges"
	"github.com/dmindex/dmindex/pkg/index/internal/slottedtree"
)

// session is one of the tree's that refuses keys of others.
type session struct {
	*slottedtree.Session
	x     *tree
	reach ranges.Reach // of the scan under way
}

// Session implements index.Index.
func (x *tree) Session() (index.Session, error) {
	b, err := x.NewSession()
	if err != nil {
		return nil, err
	}
	s := &session{Session: b, x: x}
	b.Owner = s
	return s, nil
}

// own refuses an operation on a key that this client has not taken.
func (s *session) own(what string, key []byte) error {
	err := s.Lay.CheckKey(key)
	if err == nil && s.x.ranges.Load().At(key) < 0 {
		err = index.ErrNotOwner
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Lookup implements index.Session.
func (s *session) Lookup(key, dst []byte) ([]byte, error) {
	if err := s.own("look up", key); err != nil {
		return dst, err
	}
	return s.Session.Lookup(key, dst)
}

// LookupBatch implements index.Session.
func (s *session) LookupBatch(keys [][]byte, visit func(i int, value []byte, err error)) error {
	for _, key := range keys {
		if err := s.own("look up", key); err != nil {
			return err
		}
	}
	return s.Session.LookupBatch(keys, visit)
}

// Insert implements index.Session.
func (s *session) Insert(key, value []byte) error {
	if err := s.own("insert", key); err != nil {
		return err
	}
	return s.Session.Insert(key, value)
}

// Update implements index.Session.
func (s *session) Update(key, value []byte) error {
	if err := s.own("update", key); err != nil {
		return err
	}
	return s.Session.Update(key, value)
}

// Upsert implements index.Session.
func (s *session) Upsert(key, value []byte) error {
	if err := s.own("upsert", key); err != nil {
		return err
	}
	return s.Session.Upsert(key, value)
}

// Modify implements index.Session.
func (s *session) Modify(key []byte, change index.Change) error {
	if err := s.own("modify", key); err != nil {
		return err
	}
	return s.Session.Modify(key, change)
}

// Delete implements index.Session.
func (s *session) Delete(key []byte) error {
	if err := s.own("delete", key); err != nil {
		return err
	}
	return s.Session.Delete(key)
}

// Scan implements index.Session. It ends where DEX's does, for the same reasons (dex/scan.go).
func (s *session) Scan(start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	s.Begin()
	defer s.End()
	if reverse && len(start) > 0 && bytes.Equal(start, s.Lay.Bottom) {
		return nil // nothing is below the lowest key
	}
	s.reach.Begin(s.x.ranges.Load())
	op.Pause(s.x.Env)
	from := start
	if len(start) == 0 && !reverse {
		from = s.Lay.Bottom
	}
	if !s.reach.Starts(from, reverse) {
		return fmt.Errorf("scan: %w", index.ErrNotOwner)
	}
	return s.ScanWithin(start, limit, reverse, visit)
}
