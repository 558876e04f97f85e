package btree

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Boundaries of ranges that change their owners: at the ends of a range leaves are divided, and
// merged when both sides are of one owner again.

// IsDivided reports whether key is the low fence of a leaf, as far as one READ shows.
func (s *Session) IsDivided(key []byte) (bool, error) {
	s.Begin()
	defer s.End()
	p, err := s.descend(key, fence.Holding, 0)
	if err == nil {
		err = s.Read(p.addr, s.Node)
	}
	if err != nil {
		return false, err
	}
	h, ok := s.t.leaves.Open(p.addr, s.Node)
	return ok && bytes.Equal(h.Low, key), nil
}

// AwaitBelow returns when nobody changes the structure of the leaf with the largest keys below key
// any more that has done so when it was called, and what a dead client left of that is repaired: it
// takes the lock of that leaf, and gives it up.
func (s *Session) AwaitBelow(key []byte) error {
	s.Begin()
	defer s.End()
	if bytes.Equal(key, s.Lay.Bottom) {
		return nil
	}
	p, err := s.descend(key, fence.Ending, 0)
	for err == nil {
		if err = s.Lock(p.addr); err != nil {
			break
		}
		h, ok := s.t.leaves.Open(p.addr, s.Node)
		dead := !ok && unit.IsDead(p.addr, s.Node)
		beyond, next := ok && h.Beyond(key, fence.Ending), h.Sibling
		if err = s.Unlock(nil); err != nil {
			break
		}
		switch {
		case beyond:
			p = Path{addr: next}
		case ok:
			return nil
		case dead:
			if p.parent != nil {
				s.evict(p.parent)
			}
			if err = s.Reread(p.addr); err == nil {
				p, err = s.descend(key, fence.Ending, 0)
			}
		default:
			err = fmt.Errorf("leaf %v does not verify under its lock: %w", p.addr, index.ErrFormat)
		}
	}
	return fmt.Errorf("await changes below a key: %w", err)
}

// MergeAt merges the leaf that holds key with a neighbour, if it is underfull: what divided it from
// that may be gone. Only errors that the session does not survive are returned.
func (s *Session) MergeAt(key []byte) error {
	s.Begin()
	defer s.End()
	return s.TidyAt(key)
}

// TidyAt is MergeAt as a part of an operation.
func (s *Session) TidyAt(key []byte) error {
	err := s.mergeAt(key)
	if s.PS.Err() != nil {
		return fmt.Errorf("merge at a key: %w", err)
	}
	return nil
}

func (s *Session) mergeAt(key []byte) error {
	if err := s.Lay.CheckKey(key); err != nil {
		return err
	}
	p, err := s.descend(key, fence.Holding, 0)
	if err != nil {
		return err
	}
	kept, err := s.copyCached(p.addr, s.Node)
	if err == nil && !kept {
		err = s.Read(p.addr, s.Node)
	}
	if err != nil {
		return err
	}
	h, ok := s.t.leaves.Open(p.addr, s.Node)
	if !ok || h.Below(key) || h.Above(key) {
		return nil
	}
	d := s.t.leaves.Load(p.addr, s.Node)
	if d.Bytes >= s.Lay.NodeBytes/underfull {
		return nil
	}
	return s.mergeUp(key, p.addr, d)
}

// RepairAll is that of the pool, with a session of its own that has buffers for many locks.
func (s *Session) RepairAll() error {
	ps, err := s.t.Pool.NewSession(pool.RepairTable + pool.RepairRecords)
	if err != nil {
		return op.Failure(err, false)
	}
	ps.Use(s.t.config.Techniques)
	var table, records []byte
	if table, err = ps.Buffer(pool.RepairTable); err == nil {
		records, err = ps.Buffer(pool.RepairRecords)
	}
	if err == nil {
		err = ps.RepairAll(table, records, records[:min(len(records), s.Lay.NodeBytes)])
	}
	return op.Failure(errors.Join(err, ps.Close()), false)
}
