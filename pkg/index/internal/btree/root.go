package btree

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// root is the root as last read, if that is not too old to be followed; else it is read. No
// operation gets the root in another way.
func (s *Session) root() (*rootRef, error) {
	if r := s.t.root.Load(); r.stamp >= s.Floor {
		s.PS.Follows(r.stamp)
		return r, nil
	}
	s.Count.Misses += 2 // its address, and the node
	return s.relearnRoot()
}

// relearnRoot reads which node is the root, and learns it.
func (s *Session) relearnRoot() (*rootRef, error) {
	known := s.t.root.Load()
	a, err := s.PS.Root()
	if err != nil {
		return nil, op.Failure(err, false)
	}
	return s.learnRoot(a, known)
}

// learnRoot reads the level of the root, which this operation has found to be a, and keeps both for
// others. known is as for noteRoot. By the time that learnRoot returns, the root may be another
// one.
func (s *Session) learnRoot(a pool.Addr, known *rootRef) (*rootRef, error) {
	for {
		if err := s.Read(a, s.Node); err != nil {
			return nil, err
		}
		if _, leaf := s.t.leaves.Open(a, s.Node); leaf {
			return s.t.noteRoot(&rootRef{a, 0, s.PS.Stamp()}, known), nil
		}
		if n := decodeInner(s.Lay, a, s.Node); n != nil {
			s.admit(n)
			return s.t.noteRoot(&rootRef{a, n.Level(), s.PS.Stamp()}, known), nil
		}
		dead := unit.IsDead(a, s.Node)
		err := s.Reread(a)
		if err == nil && dead {
			a, err = s.PS.Root()
		}
		if err != nil {
			return nil, fmt.Errorf("read the root: %w", op.Failure(err, false))
		}
	}
}

// noteRoot keeps r as the root. It returns r, which the operation that read it may follow. known is
// a root that was kept, or followed, before r was read or made.
//
// Stamps do not say which of two roots is newer: an operation may begin later and have read the
// root word earlier, before the tree grew. So r takes the place of known, whatever the stamps are.
// Without that an operation could find that the root is another one, be led to the kept one once
// more, and find the same again, without end. Every loop that reads the root word rests on this:
// the next attempt gets what the last one has learned, or what another session has kept meanwhile.
// The second takes a READ of the root word by that session each time.
//
// In the place of any other root, r is kept unless that one was read in an operation that began
// later: that one may be newer, and holds for more operations. A root that is kept and old shows
// itself by its level, its fences, or its death, as an old copy of an inner node does.
//
// The stamp of what is kept may fall. That is safe: the stamp is when the operation began that read
// r, and an operation with a higher floor reads the root itself.
func (t *Tree) noteRoot(r, known *rootRef) *rootRef {
	for {
		old := t.root.Load()
		if old != nil && old != known && old.stamp > r.stamp || t.root.CompareAndSwap(old, r) {
			return r
		}
	}
}

// equal reports whether both are the same node, on the same level.
func (r *rootRef) equal(o *rootRef) bool { return r.addr == o.addr && r.level == o.level }

// renewRoot reads which node is the root now, and returns that, or known if it still is.
func (s *Session) renewRoot(known *rootRef) (*rootRef, error) {
	a, err := s.PS.Root()
	if err != nil {
		return nil, op.Failure(err, false)
	}
	if a == known.addr {
		return known, nil
	}
	return s.learnRoot(a, known)
}
