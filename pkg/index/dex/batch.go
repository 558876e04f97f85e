package dex

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// A batch of lookups READs together the leaves that have no frame, and then looks each key up as
// usual, except for the READ:
//
//	1  reads the eviction clock
//	2  finds no frame of the leaf
//	3  READs it, with the others
//	4  looks the key up: a frame that exists by now is used; a new frame for the leaf gets what
//	   was READ, if the leaf was not evicted after 1 (fetch.go); without a frame, what was READ
//	   is the answer, on the same condition
//
// At 2 there was no frame, and if there was one between 1 and 2, 4 finds its eviction. So at 2 all
// answered changes were in the memory servers, and 3 READ them. A later change, in a frame that is
// gone or that 4 does not find any more, is concurrent with this batch, and the lookup precedes it.
// If the leaf that was READ is not that of the key, it is not used, and the lookup continues as
// usual; also if the slot of the key is torn, or another one and none has the key.
//
// Blocks to which the leaf refers are those of a moment at or after 2, in the operation of this
// round. So they are not reused before its end.
//
// A range that is given meanwhile has none of the batch's keys (index.Partitioned). A leaf that is
// divided, merged or loaded has a frame for that, which is then evicted (fetch.go). A deferring
// session defers key by key, as usual.

// mostTogether bounds the leaves that a batch READs in one round trip.
const mostTogether = 16

// round is the part of a batch that is READ together.
type round struct {
	buffers [][]byte // for leaves
	n       int
	keys    [mostTogether]int
	leaf    [mostTogether]pool.Addr
	at      [mostTogether]int // the buffer
	since   [mostTogether]uint64
	value   []byte
	began   bool // this batch had an earlier round
	open    bool // its operation is under way
	ready   readiness
}

// together returns what a batch uses, which is made once.
func (s *session) together() *round {
	if s.batch == nil {
		s.batch = &round{buffers: s.b.Ring[:min(mostTogether, len(s.b.Ring))], value: make([]byte, 0, 64)}
	}
	return s.batch
}

// LookupBatch implements index.Session.
func (s *session) LookupBatch(keys [][]byte, visit func(i int, value []byte, err error)) error {
	r := s.together()
	r.n, r.began, r.open = 0, false, false
	defer s.endRound()
	for i, key := range keys {
		if value, found, sure := s.lookupCached(key, r.value[:0]); sure {
			if found {
				r.value = value
				visit(i, value, nil)
			} else {
				visit(i, nil, index.ErrNotFound)
			}
			continue
		}
		s.beginRound()
		if err := s.gather(i, key); err != nil {
			return fmt.Errorf("look up: %w", err)
		}
		if r.n == len(r.buffers) {
			if err := s.round(keys, visit); err != nil {
				return err
			}
			s.endRound() // so that epochs wait for one round only
		}
	}
	return s.round(keys, visit)
}

// beginRound begins the operation, or continues it: its limit is of the whole batch.
func (s *session) beginRound() {
	r := s.batch
	switch {
	case r.open:
		return
	case r.began:
		s.b.Resume()
	default:
		s.b.Begin()
	}
	r.open = true
}

func (s *session) endRound() {
	r := s.batch
	if r.open {
		s.b.End()
	}
	r.began, r.open = r.began || r.open, false
}

// served returns an error for invalid keys, and for keys that this client does not own.
func (s *session) served(key []byte) error {
	if err := s.x.lay.CheckKey(key); err != nil {
		return err
	}
	if s.x.ranges.Load().At(key) < 0 {
		return index.ErrNotOwner
	}
	return nil
}

// gather adds key i to the round, and its leaf to those that are READ, unless the leaf has a frame
// or was added before.
func (s *session) gather(i int, key []byte) error {
	r := s.batch
	if err := s.served(key); err != nil {
		return err
	}
	p, err := s.b.Descend(key)
	if err != nil {
		return err
	}
	a, k := p.Addr(), r.n
	r.n++
	r.keys[k], r.leaf[k], r.at[k] = i, a, k
	for j := range k {
		if r.leaf[j] == a {
			r.leaf[k], r.at[k], r.since[k] = a, r.at[j], r.since[j]
			return nil
		}
	}
	r.since[k] = s.x.cache.Clock.Now()
	op.Pause(s.x.env)
	if s.x.cache.Find(a) != nil {
		r.leaf[k] = pool.Nil
		return nil
	}
	return nil
}

// round READs what the round needs, and visits its keys.
func (s *session) round(keys [][]byte, visit func(i int, value []byte, err error)) error {
	r := s.batch
	n := r.n
	r.n = 0
	if n == 0 {
		return nil
	}
	for k := range n {
		if a := r.leaf[k]; a != pool.Nil && r.at[k] == k {
			s.b.PS.Read(a, r.buffers[k])
			s.x.fetches(keys[r.keys[k]])
		}
	}
	if err := s.b.PS.Post(); err != nil {
		return fmt.Errorf("look up: %w", op.Failure(err, false))
	}
	op.Pause(s.x.env)
	for k := range n {
		i := r.keys[k]
		if r.leaf[k] != pool.Nil {
			copy(s.b.Staging(), r.buffers[r.at[k]])
			s.b.Remember(r.leaf[k], r.since[k])
			s.prefetched = true
		}
		value, err := s.lookup(keys[i], r.value[:0])
		s.prefetched = false
		switch {
		case err == nil:
			r.value = value
			visit(i, value, nil)
		case err == index.ErrNotFound:
			visit(i, nil, err)
		default:
			return fmt.Errorf("look up: %w", err)
		}
		if k > 0 || r.began { // Begin counts one
			s.b.Counted()
		}
	}
	return nil
}
