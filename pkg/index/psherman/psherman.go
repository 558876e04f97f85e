// Package psherman is P-Sherman, the baseline of DEX's paper (PVLDB 17(10), 2024, section 8):
// Sherman whose key ranges have owners. Only the owner of a range changes its leaves, so it needs
// no locks of the memory servers for that. Leaves are READ each time, and a change is in the memory
// servers when it is answered: there is no log. slottedtree/own.go has the protocol. What is here
// is which leaves are this client's.
//
// It is there to be measured against, and is not registered: only the benchmark knows it.
package psherman

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/ranges"
	"github.com/dmindex/dmindex/pkg/index/internal/slottedtree"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Name of the design. The number is not used: memory servers do nothing for it.
const (
	Name   = "p-sherman"
	number = 6
)

// Design is what the benchmark knows of it.
var Design = index.Design{Name: Name, Number: number}

func init() { Design.Open = Open }

// tree implements index.Partitioned and btree.LeafCache.
type tree struct {
	*slottedtree.Tree
	ranges atomic.Pointer[ranges.Table]
	moves  env.Mutex // held by Take, Give and BulkLoad
}

// Open opens the index in p, or creates it. The pool stays the caller's. This client may use no key
// before it has taken it.
func Open(p *pool.Pool, o index.Options) (index.Index, error) {
	if err := index.CheckSwitches(Name, nil, o.Switches); err != nil {
		return nil, fmt.Errorf("open a %s index: %w", Name, err)
	}
	x := &tree{moves: p.Env().NewMutex()}
	x.ranges.Store(ranges.Of())
	var err error
	x.Tree, err = slottedtree.Open(p, slottedtree.Config{
		Design: index.Design{Name: Name, Number: number}, Options: o,
		Cache: x, NoHints: true, Own: true, Combine: true, DelegateReads: true,
	})
	if err != nil {
		return nil, err
	}
	return x, nil
}

// Log implements index.Partitioned: there is none.
func (x *tree) Log() []byte { return nil }

// Take implements index.Partitioned. What dead clients left half done is repaired first, since a
// later repair would undo changes that are made without locks. Then the leaves at both ends are
// divided, so that each belongs to one range entirely. AwaitBelow waits for a client that is
// dividing the same leaf.
func (x *tree) Take(r pool.Holding) error {
	x.moves.Lock()
	defer x.moves.Unlock()
	ends := x.ends(r.Start, r.End)
	err := x.session(func(s *slottedtree.Session) error {
		err := s.RepairAll()
		for _, key := range ends {
			if err == nil {
				err = divide(s, key)
			}
			if err == nil {
				err = s.AwaitBelow(key)
			}
		}
		if err != nil {
			return err
		}
		x.ranges.Store(x.ranges.Load().With(ranges.Span{Start: bytes.Clone(r.Start), End: bytes.Clone(r.End), Epoch: r.Epoch}))
		// Where this range meets another one of this client, their leaves may be merged.
		for _, key := range ends {
			_ = s.MergeAt(key) // if it fails, later deletes do it
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("take a range: %w", err)
	}
	return nil
}

// Give implements index.Partitioned. The steps are the first four of DEX's (dex/give.go): from the
// mark on no merge claims a leaf of the range, and merges under way are awaited; then the leaves at
// both ends are divided, and the range leaves the table. Nothing is written back.
func (x *tree) Give(start, end []byte) (written int, err error) {
	x.moves.Lock()
	defer x.moves.Unlock()
	before := x.ranges.Load()
	x.ranges.Store(before.Giving(ranges.Span{Start: bytes.Clone(start), End: bytes.Clone(end)}))
	err = x.session(func(s *slottedtree.Session) error {
		s.Begin()
		err := s.AwaitMerges()
		s.End()
		for _, key := range x.ends(start, end) {
			if err == nil {
				err = divide(s, key)
			}
		}
		return err
	})
	if err != nil {
		x.ranges.Store(before)
		return 0, fmt.Errorf("give a range: %w", err)
	}
	x.ranges.Store(before.Without(start, end))
	return 0, nil
}

// session calls do with a session of the tree's own.
func (x *tree) session(do func(s *slottedtree.Session) error) error {
	s, err := x.Tree.NewSession()
	if err != nil {
		return err
	}
	if err := do(s); err != nil {
		return errors.Join(err, s.Close())
	}
	_ = s.Close() // it is done; the next operation notices a lost connection
	return nil
}

func divide(s *slottedtree.Session, key []byte) error {
	s.Begin()
	defer s.End()
	return s.Divide(key)
}

// ends are the fences that leaves of the keys from start up to end have at the ends.
func (x *tree) ends(start, end []byte) (list [][]byte) {
	for _, key := range [][]byte{start, end} {
		if f := x.Layout().FenceOf(key); f != nil {
			list = append(list, f)
		}
	}
	return list
}

// BulkLoad implements index.Index. This client must have taken all keys.
func (x *tree) BulkLoad(pairs index.Pairs, parallel int) error {
	x.moves.Lock()
	defer x.moves.Unlock()
	if all := x.ranges.Load(); !all.Covers(x.Layout().Bottom, nil, true) {
		return fmt.Errorf("bulk load: this client has not taken all keys: %w", index.ErrNotOwner)
	}
	return x.Tree.BulkLoad(pairs, parallel)
}

// Claim implements btree.LeafCache. The locks of the leaves keep other sessions away.
func (x *tree) Claim(_ *btree.Session, _ pool.Addr, low, high []byte, rightmost bool) (bool, error) {
	return x.ranges.Load().MayMerge(low, high, rightmost), nil
}

// Release implements btree.LeafCache.
func (x *tree) Release(pool.Addr) {}

// Copy implements btree.LeafCache.
func (x *tree) Copy(*btree.Session, pool.Addr, []byte) (bool, error) { return false, nil }

// BeforeLoad implements btree.LeafCache.
func (x *tree) BeforeLoad(*btree.Session) error { return nil }

// Bound implements btree.LeafCache.
func (x *tree) Bound(b *btree.Session, cursor []byte, reverse bool) (bound []byte, ok bool) {
	return b.Owner.(*session).reach.Bound(x.ranges.Load(), cursor, reverse)
}

// Clock implements btree.LeafCache.
func (x *tree) Clock() uint64 { return 0 }

// Admit implements btree.LeafCache.
func (x *tree) Admit(*btree.Session, pool.Addr, []byte, []byte, bool, []byte, uint64) error {
	return nil
}

// Offload implements btree.LeafCache.
func (x *tree) Offload(*btree.Session, btree.Way) bool { return false }
