package blink

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// onlyLeaf is the leaf that an empty index consists of.
func (s *session) onlyLeaf() (pool.Addr, error) {
	root, err := s.relearnRoot()
	if err != nil {
		return pool.Nil, err
	}
	a := root.addr
	if root.level > 0 {
		return pool.Nil, fmt.Errorf("it has %d levels: %w", root.level+1, index.ErrNotEmpty)
	}
	var l slotted.Leaf
	if !l.Open(s.lay, a, s.node) || !l.Verify() {
		return a, nil // somebody is changing it; it is looked at under its lock in the end
	}
	return a, l.Empties()
}

// replaceEmpty rewrites the only leaf of the index, if it is still that and empty, under its lock:
// as the inner node top, or if that is nil as the one leaf in b. published says that this took
// effect, or may have.
//
// Requests: lock + READ of the leaf; READ of the root word; rewrite of the node under its next
// version (pool.Session.Rewrite), release. By G1 and G3 all other nodes are there before. Where a
// leaf cache has leaves, this one is claimed around all of that: what this client has changed there
// is written back before it is looked at, and nobody of this client changes it, or reads it as a
// leaf, until it is another node. The cache hears of the load (LeafCache.BeforeLoad) when the leaf
// is known to be all that there is, and empty.
func (s *session) replaceEmpty(a pool.Addr, top *rising, b *batch) (published bool, err error) {
	s.Begin() // anew: the source took its time
	if err := s.claimRoot(a); err != nil {
		return false, err
	}
	defer s.releaseRoot(a)
	if err := s.lock(a); err != nil {
		return false, err
	}
	var l slotted.Leaf
	if !l.Open(s.lay, a, s.node) {
		return false, s.Unlock(fmt.Errorf("its root is no leaf any more: %w", index.ErrNotEmpty))
	}
	if err := l.Empties(); err != nil {
		return false, s.Unlock(err)
	}
	now, err := s.PS.Root()
	if err != nil {
		return false, s.Unlock(op.Failure(err, false))
	}
	if now != a {
		return false, s.Unlock(fmt.Errorf("it has another root: %w", index.ErrNotEmpty))
	}
	if err := s.PS.ReserveRewrite(a, s.lay.NodeBytes); err != nil {
		return false, s.Unlock(op.Failure(err, false))
	}
	if s.t.leaves != nil {
		if err := s.t.leaves.BeforeLoad(s); err != nil {
			return false, s.Unlock(err)
		}
	}
	n, known := 0, s.t.root.Load()
	if top == nil {
		n = b.build(&b.nodes[0], s.left, s.lay, a, l.Version+1)
	} else {
		n = top.build(s.left, s.lay, a, l.Version+1)
	}
	s.PS.Rewrite(a, s.left[:n])
	if err := s.publish(); err != nil {
		return true, err
	}
	if top != nil {
		s.keep(decodeInner(s.lay, a, s.left))
		s.t.noteRoot(&rootRef{a, top.level, s.PS.Stamp()}, known)
	}
	return true, nil
}

// outgrown says whether the node at a, of which b was read, was the root and a leaf, and is an
// inner node by now: a bulk load has put a tree in its place. The new root is learned then, and the
// descent has to begin anew. No lock may be held.
func (s *session) outgrown(a pool.Addr, b []byte) (bool, error) {
	if b[unit.AtKind] == 0 {
		return false, nil
	}
	if decodeInner(s.lay, a, b) == nil {
		return false, nil
	}
	if err := s.Reread(a); err != nil {
		return true, err
	}
	_, err := s.relearnRoot()
	return true, err
}
