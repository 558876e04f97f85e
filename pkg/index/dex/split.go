package dex

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
)

// splitAt divides the leaf that holds key, which this client has taken, so that key is the low
// fence of a leaf.
func (s *session) splitAt(key []byte) error {
	if err := s.x.lay.CheckKey(key); err != nil {
		return fmt.Errorf("split at a key: %w", err)
	}
	s.b.Begin()
	defer s.b.End()
	if !s.x.with.partitioning {
		return s.b.Divide(key)
	}
	p, err := s.b.Descend(key)
	if err != nil {
		return err
	}
	for hops := 0; ; {
		f := s.x.cache.Locate(&p)
		if f == nil {
			var l slotted.Leaf
			if _, _, err := s.fetch(&p, &l, key, &hops, true); err != nil {
				return err
			}
			continue
		}
		st, err := s.divide(f, &p, key)
		if err != nil || st == frame.Done {
			return err
		}
		if st == frame.Evicted {
			if p, err = s.b.Descend(key); err != nil {
				return err
			}
			continue
		}
		if err := s.resolve(st, &p, key, &hops); err != nil {
			return err
		}
	}
}

// divide divides the leaf where p leads, in f, at key.
func (s *session) divide(f *frame.Frame, p *btree.Path, key []byte) (frame.State, error) {
	if !f.TryLock() {
		return frame.Busy, nil
	}
	var v frame.View
	st := frame.Done
	switch {
	case f.Addr() != p.Addr():
		st = frame.Evicted
	case !f.Open(&v):
		f.Unlock()
		return frame.Done, fmt.Errorf("what is kept of leaf %v is no leaf: %w", p.Addr(), index.ErrFormat)
	case f.Above(&v, key, s.x.lay.Uint64):
		st = frame.AboveRange
	case f.Below(&v, key, s.x.lay.Uint64):
		st = frame.BelowRange
	}
	if st != frame.Done {
		if st == frame.Evicted || s.x.with.caching {
			f.Unlock()
			return st, nil
		}
		return st, s.discard(f)
	}
	finished := false
	err := s.replaceLeaf(f, func() (err error) {
		finished, err = s.b.DivideOnce(key)
		return err
	})
	if err == nil && !finished {
		// The leaf that holds key may be a new one now, which f does not lock: search again.
		return frame.Evicted, nil
	}
	return frame.Done, err
}

// afterwards is called when a change is made. It retires garbage, and makes a leaf that the change
// has met, and that its parent does not know, known to that: who divided it has died, or found no
// memory. Else everybody who looks for its keys would READ the parent anew.
func (s *session) afterwards() error {
	if err := s.retired(); err != nil || !s.b.Unconnected() {
		return err
	}
	return patiently(s.b.PS, s.b.ConnectMet)
}
