package dex

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// A batch of lookups READs the leaves that the cache does not have side by side, and then looks
// each key up as ever, but for the READ:
//
//	1  looks at the eviction clock
//	2  finds no frame of the leaf
//	3  READs it, with the others
//	4  looks the key up: a frame that there is by now is used; one that is made for the leaf gets
//	   what was READ, if the leaf has not departed after 1 (fetch.go); if none is made, what was
//	   READ is the answer, on the same condition
//
// At 2 there was no frame, and if there was one between 1 and 2, 4 finds that it departed. So at 2
// all changes that had been answered were in the memory servers, and 3 READ them. A change that
// came later, in a frame that is gone or that 4 does not find any more, is beside this batch: the
// lookup was before it. If the leaf that was READ is not that of the key, or was torn, it is not
// used, and the lookup goes on as ever.
//
// Blocks to which the leaf refers are as it was at 2 or later, in the operation of this round. So
// they are nobody else's before its end.
//
// A range that is given meanwhile has none of the batch's keys (index.Partitioned). A leaf that is
// divided, merged or loaded has a frame for that, and departs (fetch.go). What the session defers,
// it defers key by key, as ever.

// mostTogether is how many leaves a batch READs in one round trip at most.
const mostTogether = 16

// round is what a batch READs together.
type round struct {
	buffers [][]byte // for leaves
	n       int
	keys    [mostTogether]int
	leaf    [mostTogether]pool.Addr
	at      [mostTogether]int // the buffer
	since   [mostTogether]uint64
	value   []byte
	began   bool // there was one in this batch before
	open    bool // it is an operation that is under way
}

// LookupBatch implements index.Session.
func (s *session) LookupBatch(keys [][]byte, visit func(i int, value []byte, err error)) error {
	if s.batch == nil {
		s.batch = &round{buffers: s.b.Ring[:min(mostTogether, len(s.b.Ring))], value: make([]byte, 0, 64)}
	}
	r := s.batch
	if s.x.with.direct() {
		for _, key := range keys {
			if err := s.served(key); err != nil {
				return fmt.Errorf("look up: %w", err)
			}
		}
		return s.b.LookupBatch(keys, visit)
	}
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
			s.endRound() // the epochs wait for no more than a round
		}
	}
	return s.round(keys, visit)
}

// beginRound begins the operation, or goes on with it: its limit is of the whole batch.
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

// served refuses keys that are none, or not this client's.
func (s *session) served(key []byte) error {
	if err := s.x.lay.CheckKey(key); err != nil {
		return err
	}
	if s.x.ranges.Load().at(key) < 0 {
		return index.ErrNotOwner
	}
	return nil
}

// gather adds key i to the round, and its leaf to those that are READ, unless that has a frame or
// is one of them already.
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
	r.since[k] = s.x.cache.evictions.clock.Load()
	s.x.pause()
	if s.x.cache.find(a) != nil {
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
			s.x.fetched.Add(1)
		}
	}
	if err := s.b.PS.Post(); err != nil {
		return fmt.Errorf("look up: %w", op.Failure(err, false))
	}
	s.x.pause()
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
