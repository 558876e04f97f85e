package btree

import (
	"errors"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/pool"
)

// merger is what a client needs to merge nodes: one of its sessions at a time uses it.
type merger struct {
	busy        bool   // guarded by tree.mu
	turns       uint64 // how often it was given back; guarded by tree.mu
	left, right *pool.Session
	words       []*pool.Session // for the lock words of two leaves, if they have some
	node        [2][]byte       // of left and right: the nodes under their locks
	image       [2][]byte
}

// acquireMerger lets the caller be the one who merges, for at most limit a step; nil if another
// session does.
func (t *Tree) acquireMerger(limit time.Duration) (*merger, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.merger == nil {
		m := new(merger)
		for i, s := range []**pool.Session{&m.left, &m.right} {
			var err error
			if *s, err = t.Pool.NewSession(2 * t.Lay.NodeBytes); err == nil {
				m.node[i], err = (*s).Buffer(t.Lay.NodeBytes)
			}
			if err == nil {
				m.image[i], err = (*s).Buffer(t.Lay.NodeBytes)
			}
			if err != nil {
				return nil, errors.Join(err, m.close())
			}
		}
		for range t.wordsOfMerge() {
			ps, err := t.Pool.NewSession(0)
			if err != nil {
				return nil, errors.Join(err, m.close())
			}
			m.words = append(m.words, ps)
		}
		t.merger = m
	}
	if t.merger.busy || t.merger.holdsWords() { // or its client is given up

		return nil, nil
	}
	t.merger.busy = true
	t.merger.left.SetLimit(limit)
	t.merger.right.SetLimit(limit)
	for _, ps := range t.merger.words {
		ps.SetLimit(limit)
	}
	return t.merger, nil
}

func (t *Tree) releaseMerger(m *merger) {
	m.left.End()
	m.right.End()
	for _, ps := range m.words {
		ps.End()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	m.busy = false
	m.turns++
}

// AwaitMerges returns when the merge of this client that is under way, if there is one, is over. A
// merge that begins later asks the leaf cache later. It is a part of an operation.
func (s *Session) AwaitMerges() error {
	under := func() (turn uint64, busy bool) {
		s.t.mu.Lock()
		defer s.t.mu.Unlock()
		m := s.t.merger
		if m == nil {
			return 0, false
		}
		return m.turns, m.busy
	}
	first, busy := under()
	for turn := first; busy && turn == first; turn, busy = under() {
		if err := s.Retry(); err != nil {
			return fmt.Errorf("await a merge: %w", err)
		}
	}
	return nil
}

func (m *merger) close() error {
	var errs []error
	for _, s := range append([]*pool.Session{m.left, m.right}, m.words...) {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}
