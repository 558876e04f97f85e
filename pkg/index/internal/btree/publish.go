package btree

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/loader"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// onlyLeaf is the leaf of an index that has one. It is READ to s.Node.
func (s *Session) onlyLeaf() (pool.Addr, error) {
	root, err := s.relearnRoot()
	if err != nil {
		return pool.Nil, err
	}
	if root.level > 0 {
		return pool.Nil, fmt.Errorf("it has %d levels: %w", root.level+1, index.ErrNotEmpty)
	}
	return root.addr, nil
}

// emptyIndex returns ErrNotEmpty if the index has pairs, as far as can be said without a lock.
func (s *Session) emptyIndex(leaves LeafLoader) error {
	a, err := s.onlyLeaf()
	if err != nil || !s.t.leaves.Verify(a, s.Node) {
		return err // if somebody is changing it, it is looked at under its lock in the end
	}
	return leaves.Empties(a, s.Node)
}

// replaceEmpty rewrites the only leaf of the index, if that is empty, under its lock: as the inner
// node top, or if that is nil as the one leaf in b. published says that this took effect, or may
// have.
//
// Requests: READ of the root word and of the leaf; lock + READ of the leaf; READ of the root word;
// rewrite of the node under its next version (pool.Session.Rewrite), release. By G1 and G3 all
// other nodes are there before. Where a leaf cache has leaves, this one is claimed around all of
// that: what this client has changed there is written back before it is looked at, and nobody of
// this client changes it, or reads it as a leaf, until it is another node. The cache hears of the
// load (LeafCache.BeforeLoad) when the leaf is known to be all that there is, and empty.
func (s *Session) replaceEmpty(top *rising, leaves LeafLoader, b *loader.Batch) (published bool, err error) {
	a, err := s.onlyLeaf()
	if err != nil {
		return false, err
	}
	if err := s.claimRoot(a); err != nil {
		return false, err
	}
	defer s.releaseRoot(a)
	free, err := s.guardWord(a)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, free()) }()
	if err := s.Lock(a); err != nil {
		return false, err
	}
	h, ok := s.t.leaves.Open(a, s.Node)
	if !ok {
		return false, s.Unlock(fmt.Errorf("its root is no leaf any more: %w", index.ErrNotEmpty))
	}
	if err := leaves.Empties(a, s.Node); err != nil {
		return false, s.Unlock(err)
	}
	now, err := s.PS.Root()
	if err != nil {
		return false, s.Unlock(op.Failure(err, false))
	}
	if now != a {
		return false, s.Unlock(fmt.Errorf("it has another root: %w", index.ErrNotEmpty))
	}
	if err := s.PS.ReserveRewrite(a, s.Lay.NodeBytes); err != nil {
		return false, s.Unlock(op.Failure(err, false))
	}
	if s.t.leafCache != nil {
		if err := s.t.leafCache.BeforeLoad(s); err != nil {
			return false, s.Unlock(err)
		}
	}
	n, known := 0, s.t.root.Load()
	if top == nil {
		n = b.Leaves.Build(0, s.Image, a, h.Version+1)
	} else {
		n = top.Build(s.Image, s.Lay, a, h.Version+1)
	}
	s.PS.Rewrite(a, s.Image[:n])
	if err := s.Publish(); err != nil {
		return true, err
	}
	if top != nil {
		s.admit(decodeInner(s.Lay, a, s.Image))
		s.t.noteRoot(&rootRef{a, top.Level, s.PS.Stamp()}, known)
	}
	return true, nil
}
