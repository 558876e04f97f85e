package dex

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
)

// splitAt divides the leaf that holds key, which this client has taken, so that key is the low
// fence of a leaf.
func (s *session) splitAt(key []byte) error {
	if err := s.x.lay.CheckKey(key); err != nil {
		return fmt.Errorf("split at a key: %w", err)
	}
	s.b.Begin()
	defer s.b.End()
	return s.inFrame(key, func(f *frame.Frame, p *btree.Path) (frame.State, error) { return s.divide(f, p, key) })
}

// divide divides the leaf where p leads, in f, at key.
func (s *session) divide(f *frame.Frame, p *btree.Path, key []byte) (frame.State, error) {
	if !f.TryLock() {
		return frame.Busy, nil
	}
	var v frame.View
	st, err := s.holds(f, p.Addr(), key, &v)
	if st != frame.Done || err != nil {
		f.Unlock()
		return st, err
	}
	finished := false
	err = s.replaceLeaf(f, func() (err error) {
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
