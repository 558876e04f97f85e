package blink

import (
	"bytes"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// What such designs use of the tree.
type (
	Session = session
	Path    = path
)

// SetCacheBound makes n the bound of the cache of inner nodes, which may become up to half as large
// again as it was opened with: its table has room for that. false: there are more bytes in it.
func (t *tree) SetCacheBound(n int64) bool { return t.cache.SetBound(n) }

// CacheBytes are those of the cache of inner nodes.
func (t *tree) CacheBytes() int64 { return t.cache.Bytes() }

// CacheShort says whether inner nodes that are in use have had no room in the cache since it was
// asked the last time.
func (t *tree) CacheShort() bool { return t.cache.Short() }

// Layout is that of the tree's nodes.
func (t *tree) Layout() *fence.Layout { return &t.lay }

// NewSession makes a session; see index.Index.
func (t *tree) NewSession() (*Session, error) { return t.newSession() }

// Staging is a buffer for one leaf, which the tree does not use. Who asks for it may write it: what
// it had is forgotten.
func (s *session) Staging() []byte {
	s.remembered, s.since = pool.Nil, 0
	return s.staging
}

// Remember notes that the staging buffer has what was READ of the leaf at a after the leaf cache's
// clock showed since, until somebody asks for the buffer. Whoever uses it verifies it.
func (s *session) Remember(a pool.Addr, since uint64) { s.remembered, s.since = a, since }

// Remembers says whether it has that leaf, and since when.
func (s *session) Remembers(a pool.Addr) (since uint64, ok bool) {
	return s.since, a == s.remembered && a != pool.Nil
}

// Spare is another one. The tree uses it in operations of its own.
func (s *session) Spare() []byte { return s.rest }

// Buffers are those of the ring, at most n: for leaves, in an operation that is no scan nor batch
// of the tree's.
func (s *session) Buffers(n int) [][]byte { return s.ring[:min(n, len(s.ring))] }

// Descend finds where the leaf for key is, as far as copies of inner nodes say.
func (s *session) Descend(key []byte) (Path, error) {
	p, err := s.descend(key, fence.Holding, 0)
	if err == nil {
		s.hit(&p)
	}
	return p, err
}

// Addr is where the path leads.
func (p *path) Addr() pool.Addr { return p.addr }

// Next is the i-th leaf to the right of where the path leads that has the same parent, and the
// lowest key of its range, as the copy of the parent has them. ok is false if it has none.
func (p *path) Next(i int) (a pool.Addr, low []byte, ok bool) {
	if p.parent == nil || p.child+i >= len(p.parent.children) {
		return pool.Nil, nil, false
	}
	return p.parent.children[p.child+i], p.parent.separator(p.child + i - 1), true
}

// Judge looks at b, what was read of the leaf where p leads. true: l is that leaf, verified as a
// whole, and its range holds key. Else p leads elsewhere now, or to the same one again; read again.
// hops is of one operation.
func (s *session) Judge(p *Path, l *slotted.Leaf, key, b []byte, hops *int) (bool, error) {
	if l.Open(s.lay, p.addr, b) {
		if l.Below(key) {
			return false, s.Misled(p, key, hops)
		}
		if l.Above(key) {
			return false, s.follow(p, l, key, hops)
		}
		if l.Verify() {
			return true, nil
		}
		return false, s.Reread(p.addr)
	}
	if unit.IsDead(p.addr, b) {
		return false, s.lost(p, key)
	}
	grew, err := s.outgrown(p.addr, b)
	if err == nil && grew {
		*p, err = s.descend(key, fence.Holding, 0)
		return false, err
	}
	if err == nil {
		err = s.Reread(p.addr)
	}
	return false, err
}

// RepairAll is that of the pool.
func (s *session) RepairAll() error { return op.Failure(s.PS.RepairAll(s.Staging(), s.rest), false) }

// Find is Lookup as a part of an operation: the leaf is READ.
func (s *session) Find(key, dst []byte) ([]byte, error) { return s.lookup(key, dst) }

// Tidy merges the leaf at a, which holds key, with a neighbour if it is nearly empty, now and then:
// count entries of so many bytes are left. It is a part of an operation, which is done: only errors
// that the session does not survive are returned.
func (s *session) Tidy(key []byte, a pool.Addr, count, entryBytes int) error {
	d := slotted.Load{Count: count, Bytes: entryBytes}
	if d.Used() >= s.lay.NodeBytes/underfull {
		return nil
	}
	return s.tidy(key, a, d)
}

// MergeAt merges the leaf that holds key with a neighbour, if it is underfull: what divided it from
// that may be gone. Only errors that the session does not survive are returned.
func (s *session) MergeAt(key []byte) error {
	s.Begin()
	defer s.End()
	err := s.mergeAt(key)
	if s.PS.Err() != nil {
		return fmt.Errorf("merge at a key: %w", err)
	}
	return nil
}

func (s *session) mergeAt(key []byte) error {
	if err := s.lay.CheckKey(key); err != nil {
		return err
	}
	p, err := s.descend(key, fence.Holding, 0)
	if err != nil {
		return err
	}
	var l slotted.Leaf
	kept, err := s.kept(p.addr, s.node)
	if err == nil && !kept {
		err = s.Read(p.addr, s.node)
	}
	if err != nil || !l.Open(s.lay, p.addr, s.node) || l.Below(key) || l.Above(key) {
		return err
	}
	d := l.Load()
	if d.Used() >= s.lay.NodeBytes/underfull {
		return nil
	}
	return s.mergeUp(key, p.addr, d)
}

// SplitAt makes key the low fence of a leaf: the one that holds it is divided there, whatever is in
// it. What is kept of that one must be written back before, and is old afterwards.
func (s *session) SplitAt(key []byte) error {
	s.Begin()
	defer s.End()
	return s.Divide(key)
}

// AwaitBelow returns when nobody changes the structure of the leaf with the largest keys below key
// any more that has done so when it was called, and what a dead client left of that is repaired: it
// takes the lock of that leaf, and gives it up.
func (s *session) AwaitBelow(key []byte) error {
	s.Begin()
	defer s.End()
	if bytes.Equal(key, s.lay.Bottom) {
		return nil
	}
	p, err := s.descend(key, fence.Ending, 0)
	for err == nil {
		if err = s.lock(p.addr); err != nil {
			break
		}
		var l slotted.Leaf
		found := s.leafAt(&l, p.addr)
		beyond, next := found == nil && l.Beyond(key, fence.Ending), l.Sibling
		if err = s.Unlock(nil); err != nil {
			break
		}
		switch {
		case beyond:
			p = path{addr: next}
		case found == nil:
			return nil
		case found == errDead:
			if p.parent != nil {
				s.drop(p.parent)
			}
			if err = s.Reread(p.addr); err == nil {
				p, err = s.descend(key, fence.Ending, 0)
			}
		default:
			err = found
		}
	}
	return fmt.Errorf("await changes below a key: %w", err)
}

// IsDivided says whether key is the low fence of a leaf, as far as one READ shows.
func (s *session) IsDivided(key []byte) (bool, error) {
	s.Begin()
	defer s.End()
	p, err := s.descend(key, fence.Holding, 0)
	if err == nil {
		err = s.Read(p.addr, s.node)
	}
	var l slotted.Leaf
	return err == nil && l.Open(s.lay, p.addr, s.node) && bytes.Equal(l.Low, key), err
}

// Divide is SplitAt as a part of an operation.
func (s *session) Divide(key []byte) error {
	for {
		if done, err := s.DivideOnce(key); done || err != nil {
			return err
		}
	}
}

// DivideOnce changes one leaf for Divide: the one that holds key now. done is false if the fence
// itself took too much room: the leaf was divided elsewhere, and the one of the two that holds key,
// which may be the new one, is to be divided next.
func (s *session) DivideOnce(key []byte) (done bool, err error) {
	if err := s.lay.CheckKey(key); err != nil {
		return false, fmt.Errorf("split at a key: %w", err)
	}
	if bytes.Equal(key, s.lay.Bottom) {
		return true, nil
	}
	var l slotted.Leaf
	if err := s.lockLeaf(&l, key); err != nil {
		return false, fmt.Errorf("split at a key: %w", err)
	}
	if bytes.Equal(l.Low, key) {
		return true, s.Unlock(nil)
	}
	p := &s.pairs
	if !l.Collect(p) {
		return false, s.Unlock(fmt.Errorf("leaf %v does not verify under its lock: %w", l.Addr, index.ErrFormat))
	}
	p.Sort()
	at := 0
	for at < len(p.List) && item.Below(p.Key(at), key) {
		at++
	}
	left, right := slotted.LoadOf(p.List[:at]), slotted.LoadOf(p.List[at:])
	done = left.Used() <= s.lay.Room(l.Low, key) && right.Used() <= s.lay.Room(key, l.High)
	if done {
		err = s.divide(&l, p, at, key, s.beside(&l, false))
	} else {
		err = s.splitLeaf(&l, p, false)
	}
	if err != nil && s.PS.Holds() {
		err = s.Unlock(err)
	}
	return done, err
}

// claim and release are the leaf cache's, if there is one.
func (s *session) claim(n *inner, i int) (bool, error) {
	if s.t.leaves == nil || n.Level > 1 {
		return true, nil
	}
	low, high, rightmost := n.low, n.high, n.rightmost && i == len(n.children)-1
	if i > 0 {
		low = n.separator(i - 1)
	}
	if i < len(n.children)-1 {
		high = n.separator(i)
	}
	return s.t.leaves.Claim(s, n.children[i], low, high, rightmost)
}

func (s *session) release(n *inner, i int) {
	if s.t.leaves != nil && n.Level == 1 {
		s.t.leaves.Release(n.children[i])
	}
}

// claimRoot claims the leaf at a, which is the whole of an index, and waits for it.
func (s *session) claimRoot(a pool.Addr) error {
	for s.t.leaves != nil {
		if ok, err := s.t.leaves.Claim(s, a, s.lay.Bottom, nil, true); ok || err != nil {
			return err
		}
		if err := s.Retry(); err != nil {
			return fmt.Errorf("leaf %v is in use: %w", a, op.Failure(err, false))
		}
	}
	return nil
}

func (s *session) releaseRoot(a pool.Addr) {
	if s.t.leaves != nil {
		s.t.leaves.Release(a)
	}
}

// kept makes b the leaf at a as the leaf cache has it, if there is one and it does.
func (s *session) kept(a pool.Addr, b []byte) (bool, error) {
	if s.t.leaves == nil {
		return false, nil
	}
	return s.t.leaves.Copy(s, a, b)
}

// offer tells who wants it of leaf l, which is next in the ring, if it was READ.
func (s *session) offer(sc *scan, l *slotted.Leaf) error {
	if s.Owner == nil || sc.read>>sc.next&1 == 0 {
		return nil
	}
	return s.t.leaves.Admit(s, l.Addr, l.Low, l.High, l.Rightmost, s.ring[sc.next], sc.since)
}
