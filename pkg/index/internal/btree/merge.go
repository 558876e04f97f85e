package btree

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Merging. The paper has none. A node that has become underfull is merged with a neighbour of the
// same parent: the left one of the two takes what both have, the right one dies, and the parent
// forgets it. The three change together (pool.RewriteAll), under the locks of all three; the
// parent's is taken first, and the others only if nobody has them, so nobody who holds a lock waits
// for another one.
//
// What others see, in the order of the changes:
//
//  1. the left node's next version: it holds what both held. The right node holds its part still,
//     and the same, as its lock is taken: a reader may take a key from either.
//  2. the parent's next version: it leads to the left node only.
//  3. the right node is dead. Whoever was led to it by an old copy of the parent, or of the left
//     node, descends again. Until then the left node cannot be changed, so what was read from the
//     right one before was current.
//
// A client that dies in between leaves locks to repair, by which all three change or none.

const (
	underfull = 4 // a node is underfull when less than one in so many of its bytes is in use
	tryMerge  = 4 // one in so many deletes from an underfull leaf looks for a neighbour
)

// MayFill is how much of room a merged node may have in use: three quarters, so that it does not
// split again at once. If one of the two is empty, nearly all: an empty node shall always go.
func MayFill(room int, empty bool) int {
	if empty {
		return room - room/16
	}
	return room - room/4
}

// Tidy merges the leaf at a, which holds key and d, with a neighbour if it is nearly empty and the
// neighbour has room, and then perhaps its parent, and so on. No lock is held before or after. The
// operation is done: only errors that the session does not survive are returned.
func (s *Session) Tidy(key []byte, a pool.Addr, d Load) error {
	if d.Bytes >= s.Lay.NodeBytes/underfull {
		return nil
	}
	if d.Pairs > 0 && !invariants.Enabled && s.Env.Uint64()%tryMerge != 0 {
		return nil
	}
	err := s.mergeUp(key, a, d)
	if s.PS.Err() != nil {
		return fmt.Errorf("the change is made, but a merge failed: %w: %w", index.ErrUnknown, err)
	}
	return nil
}

func (s *Session) mergeUp(key []byte, a pool.Addr, d Load) error {
	p, err := s.descend(key, fence.Holding, 0)
	if err != nil || p.parent == nil || p.addr != a {
		return err
	}
	ok, err := s.roomBeside(p.parent, p.child, d)
	if err != nil || !ok {
		return err
	}
	m, err := s.t.acquireMerger(s.PS.Limit())
	if m == nil || err != nil {
		return op.Failure(err, false)
	}
	defer s.t.releaseMerger(m)
	key = append([]byte(nil), key...)
	for level := uint8(0); ; level++ {
		more, err := s.merge(m, level, key)
		if err != nil || !more {
			return err
		}
	}
}

// roomBeside reports whether a neighbour of child i of n, which holds d, seems to have room for it.
// It takes no lock.
func (s *Session) roomBeside(n *inner, i int, d Load) (bool, error) {
	for _, j := range []int{i + 1, i - 1} {
		if j < 0 || j >= len(n.children) {
			continue
		}
		kept, err := s.copyCached(n.children[j], s.Node)
		if err == nil && !kept {
			err = s.Read(n.children[j], s.Node)
		}
		if err != nil {
			return false, err
		}
		h, ok := s.t.leaves.Open(n.children[j], s.Node)
		if !ok {
			continue
		}
		beside := s.t.leaves.Load(n.children[j], s.Node)
		if beside.Bytes+d.Bytes <= MayFill(s.Lay.Room(h.Low, h.High), d.Pairs == 0) {
			return true, nil
		}
	}
	return false, nil
}

// merge merges the node of a level that holds key with a neighbour. more says that the parent is
// underfull now.
func (s *Session) merge(m *merger, level uint8, key []byte) (more bool, err error) {
	root, err := s.root()
	if err != nil {
		return false, err
	}
	if level >= root.level {
		return false, s.shrinkRoot(m)
	}
	p, err := s.descend(key, fence.Holding, level+1)
	var n *inner
	if err == nil {
		n, err = s.lockInner(new(inner), p, key, level+1)
	}
	if err == errDead {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	i := n.child(s.Lay, key)
	for _, left := range []int{i, i - 1} {
		if left < 0 || left+1 >= len(n.children) {
			continue
		}
		parent, err := s.mergeChildren(m, n, left)
		if err != nil {
			return false, err
		}
		if parent != nil {
			return len(parent.Children) == 1 || parent.Bytes(s.Lay) < s.Lay.NodeBytes/underfull, nil
		}
	}
	return false, s.Unlock(nil)
}

// shrinkRoot takes the root away, and again, as long as it is an inner node with one child, which
// becomes the root.
//
// The root word and the old root, which dies, lie on two servers, and change together
// (pool.RewriteAndSwap), under the locks of both. The word comes first, so a dead node is never the
// root. Whoever still follows the old root finds the same child there, or that it is dead. If this
// client dies in between, or is fenced on one of the two servers, neither lock is to be had before
// both changes are made or none: else a second client could give the old root another child, while
// the word is about to lead past it, and the level below had two parents.
func (s *Session) shrinkRoot(m *merger) error {
	for waited := false; ; {
		root, err := s.root()
		if err != nil || root.level == 0 {
			return err
		}
		if err := s.Lock(root.addr); err != nil {
			return err
		}
		n := decodeInner(s.Lay, root.addr, s.Node)
		if n == nil || len(n.children) != 1 || !n.rightmost {
			return s.Unlock(nil)
		}
		swap := pool.RootSwap{From: root.addr, To: n.children[0]}
		now := pool.Nil
		if s.Pool.SharesRootLock(root.addr) {
			now, err = s.PS.Root()
		} else {
			var ok bool
			m.left.Begin()
			swap.Session = m.left
			if now, ok, err = m.left.TryLockRoot(m.node[0]); err == nil && !ok {
				// Somebody has it, or died with it: that is waited for with no lock in hand, and
				// once.
				if err := s.Unlock(nil); err != nil || waited {
					return err
				}
				waited = true
				if _, err := m.left.LockRoot(m.node[0]); err != nil {
					return op.Failure(err, false)
				}
				if err := m.left.PostUnlock(); err != nil {
					return op.Failure(err, false)
				}
				continue
			}
		}
		if err != nil {
			return s.unlockAll(m, op.Failure(err, false))
		}
		if now != root.addr {
			if err := errors.Join(s.unlockAll(m, nil), s.Unlock(nil)); err != nil {
				return err
			}
			_, err := s.learnRoot(now, root)
			return err
		}
		dead := unit.PutDead(s.Image, root.addr, n.Level(), n.Version+1)
		err = pool.RewriteAndSwap(s.Lay.NodeBytes, swap, pool.Change{Session: s.PS, Node: root.addr, Image: s.Image[:dead]})
		switch {
		case errors.Is(err, index.ErrPoolFull) && s.PS.Holds():
			return errors.Join(s.unlockAll(m, nil), s.Unlock(nil))
		case err != nil && s.PS.Holds():
			return s.unlockAll(m, op.Failure(err, false))
		case err != nil:
			return op.Failure(err, true)
		}
		s.Pool.Retire(root.addr, s.Lay.NodeBytes)
		if _, err := s.relearnRoot(); err != nil {
			return err
		}
	}
}

// mergeChildren merges children i and i+1 of the locked node n, if their locks are free and they
// fit. Then n's lock is given up, and what n has become is returned. With an error no lock is held,
// or the client is given up.
func (s *Session) mergeChildren(m *merger, n *inner, i int) (*Draft, error) {
	a := [2]pool.Addr{n.children[i], n.children[i+1]}
	if n.Level() == 1 {
		if ok, err := s.acquireWords(m, a); err != nil || !ok {
			return nil, s.unlockAll(m, err)
		}
	}
	for j, ps := range []*pool.Session{m.left, m.right} {
		ps.Begin()
		ok, err := s.claim(n, i+j)
		if ok {
			defer s.release(n, i+j)
			ok, err = ps.TryLock(a[j], m.node[j])
		}
		if err != nil || !ok {
			return nil, s.unlockAll(m, op.Failure(err, false))
		}
	}
	var size int
	if n.Level() == 1 {
		size = s.t.leaves.Merge(m.image[0], a, &m.node)
	} else {
		size = s.mergeInner(m, a)
	}
	if size == 0 {
		return nil, s.unlockAll(m, nil)
	}
	dead := s.t.kill(m.image[1], a[1], n.Level()-1, unit.Version(m.node[1])+1)
	d := n.draft()
	d.remove(i + 1)
	parent := d.Build(s.Image, s.Lay, n.Addr, n.Version+1)
	err := pool.RewriteAll(s.Lay.NodeBytes, 1,
		pool.Change{Session: m.left, Node: a[0], Image: m.image[0][:size]},
		pool.Change{Session: s.PS, Node: n.Addr, Image: s.Image[:parent]},
		pool.Change{Session: m.right, Node: a[1], Image: m.image[1][:dead]})
	switch {
	case errors.Is(err, index.ErrPoolFull):
		return nil, s.unlockAll(m, nil)
	case err != nil && s.PS.Holds():
		return nil, s.unlockAll(m, op.Failure(err, false))
	case err != nil:
		return nil, op.Failure(err, true)
	}
	s.admit(decodeInner(s.Lay, n.Addr, s.Image))
	if n.Level() > 1 {
		s.admit(decodeInner(s.Lay, a[0], m.image[0]))
	}
	s.t.merges.Add(1)
	if err := m.releaseWords(); err != nil {
		return nil, err
	}
	s.Pool.Retire(a[1], s.Lay.NodeBytes)
	return d, nil
}

// unlockAll releases what locks of two children there are, and with an error that of their parent,
// too.
func (s *Session) unlockAll(m *merger, err error) error {
	for _, ps := range append([]*pool.Session{m.right, m.left}, m.words...) {
		if ps.Holds() {
			err = errors.Join(err, op.Failure(ps.PostUnlock(), false))
		}
	}
	if err != nil && s.PS.Holds() {
		err = errors.Join(err, s.Unlock(nil))
	}
	return err
}

// mergeInner makes the image of two locked inner nodes in m.image[0] and returns its size; 0 if
// they are no siblings, or do not fit.
func (s *Session) mergeInner(m *merger, a [2]pool.Addr) int {
	l, r := decodeInner(s.Lay, a[0], m.node[0]), decodeInner(s.Lay, a[1], m.node[1])
	if l == nil || r == nil || l.rightmost || l.sibling != a[1] {
		return 0
	}
	d := l.draft()
	d.join(r.draft())
	if d.Bytes(s.Lay) > MayFill(s.Lay.NodeBytes, len(l.children) == 1 || len(r.children) == 1) {
		return 0
	}
	return d.Build(m.image[0], s.Lay, a[0], l.Version+1)
}
