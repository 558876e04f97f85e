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

// Keeper is a design's cache of leaves, for designs whose leaves have owners. The tree changes the structure of leaves in the memory servers only: what is
// kept of one must be written back before, and is old afterwards.
type Keeper interface {
	// Claim keeps everybody of this client from the leaf at a, which holds the keys from low up to high (without bound if rightmost), until Release, and writes
	// back, by posting with s, what is kept of it. false: this client may not use all of it, or may not merge it now, or somebody uses it. It waits for nobody.
	// Its caller has the client's merger until after Release, so whoever refuses claims from some moment on and then waits (AwaitMerges) knows that none is in force.
	Claim(s *Session, a pool.Addr, low, high []byte, rightmost bool) (bool, error)
	Release(a pool.Addr)

	// LeafLoads is called before a bulk load takes effect. s has claimed the only leaf and holds its lock, and the leaf is empty in the memory servers. After an error nothing is loaded.
	LeafLoads(s *Session) error

	// Copy makes b the leaf at a as it is kept, if it is; what the copy shows is durable when it returns.
	Copy(s *Session, a pool.Addr, b []byte) (bool, error)
}

// Taker is a session of such a design that wants to keep leaves that its scans READ.
type Taker interface {
	// Clock is looked at before leaves are READ.
	Clock() uint64

	// Offer is told of the leaf at a, verified as a whole, which was READ into b after the clock showed since; it holds the keys from low up to high (without bound if rightmost).
	// It may post, but changes nothing that a scan uses.
	Offer(a pool.Addr, low, high []byte, rightmost bool, b []byte, since uint64) error
}

// Bounder says where a scan ends of a client that may use some keys only, and fewer of them as time goes by.
type Bounder interface {
	// Bound is asked before a leaf is READ in which the scan goes on from cursor (or, if reverse, below it, where an empty
	// cursor is above all keys), and again when its image is complete, before any pair of it is shown: the scan shows no
	// keys from bound on, or, if reverse, none below bound. An empty bound is nowhere. The scan ends if ok is false.
	Bound(cursor []byte, reverse bool) (bound []byte, ok bool)
}

// What such designs use of the tree.
type (
	Session = session
	Path    = path
)

// SetCacheBound makes n the bound of the cache of inner nodes, which may become up to half as large again as it was opened with: its table has room for that. false: there are more bytes in it.
func (t *tree) SetCacheBound(n int64) bool { return t.cache.SetBound(n) }

// CacheBytes are those of the cache of inner nodes.
func (t *tree) CacheBytes() int64 { return t.cache.Bytes() }

// CacheShort says whether inner nodes that are in use have had no room in the cache since it was asked the last time.
func (t *tree) CacheShort() bool { return t.cache.Short() }

// Layout is that of the tree's nodes.
func (t *tree) Layout() *fence.Layout { return &t.lay }

// NewSession makes a session; see index.Index.
func (t *tree) NewSession() (*Session, error) { return t.newSession() }

// Staging is a buffer for one leaf, which the tree does not use. Who asks for it may write it: what it had is forgotten.
func (s *session) Staging() []byte {
	s.remembered, s.since = pool.Nil, 0
	return s.staging
}

// Remember notes that the staging buffer has the leaf at a, verified as a whole, READ after the taker's clock showed since, until somebody asks for the buffer.
func (s *session) Remember(a pool.Addr, since uint64) { s.remembered, s.since = a, since }

// Remembers says whether it has that leaf, and since when.
func (s *session) Remembers(a pool.Addr) (since uint64, ok bool) {
	return s.since, a == s.remembered && a != pool.Nil
}

// Spare is another one. The tree uses it in operations of its own.
func (s *session) Spare() []byte { return s.rest }

// SetTaker says who wants the leaves that scans READ.
func (s *session) SetTaker(t Taker) { s.taker = t }

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

// Next is the i-th leaf to the right of where the path leads that has the same parent, and the lowest key of its range, as the copy of the parent has them. ok is false if it has none.
func (p *path) Next(i int) (a pool.Addr, low []byte, ok bool) {
	if p.parent == nil || p.child+i >= len(p.parent.children) {
		return pool.Nil, nil, false
	}
	return p.parent.children[p.child+i], p.parent.separator(p.child + i - 1), true
}

// Judge looks at b, what was read of the leaf where p leads. true: l is that leaf, verified as a whole, and its range holds key. Else p leads elsewhere now, or to
// the same one again; read again. hops is of one operation.
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

// Tidy merges the leaf at a, which holds key, with a neighbour if it is nearly empty, now and then: count entries of so many bytes are left. It is a part of an operation, which
// is done: only errors that the session does not survive are returned.
func (s *session) Tidy(key []byte, a pool.Addr, count, entryBytes int) error {
	d := slotted.Load{Count: count, Bytes: entryBytes}
	if d.Used() >= s.lay.NodeBytes/underfull {
		return nil
	}
	return s.tidy(key, a, d)
}

// MergeAt merges the leaf that holds key with a neighbour, if it is underfull: what divided it from that may be gone. Only errors that the session does not
// survive are returned.
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

// SplitAt makes key the low fence of a leaf: the one that holds it is divided there, whatever is in it. What is kept of that one must be written back
// before, and is old afterwards.
func (s *session) SplitAt(key []byte) error {
	s.Begin()
	defer s.End()
	return s.Divide(key)
}

// AwaitBelow returns when nobody changes the structure of the leaf with the largest keys below key any more that has done so when it was called, and what a dead client left of that is repaired: it takes the lock of that leaf,
// and gives it up.
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

// DivideOnce changes one leaf for Divide: the one that holds key now. done is false if the fence itself took too much room: the leaf was divided elsewhere, and the one of the two that holds key, which may be
// the new one, is to be divided next.
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

// claim and release are the keeper's, if there is one.
func (s *session) claim(n *inner, i int) (bool, error) {
	if s.t.keep == nil || n.Level > 1 {
		return true, nil
	}
	low, high, rightmost := n.low, n.high, n.rightmost && i == len(n.children)-1
	if i > 0 {
		low = n.separator(i - 1)
	}
	if i < len(n.children)-1 {
		high = n.separator(i)
	}
	return s.t.keep.Claim(s, n.children[i], low, high, rightmost)
}

func (s *session) release(n *inner, i int) {
	if s.t.keep != nil && n.Level == 1 {
		s.t.keep.Release(n.children[i])
	}
}

// claimRoot claims the leaf at a, which is the whole of an index, and waits for it.
func (s *session) claimRoot(a pool.Addr) error {
	for s.t.keep != nil {
		if ok, err := s.t.keep.Claim(s, a, s.lay.Bottom, nil, true); ok || err != nil {
			return err
		}
		if err := s.Retry(); err != nil {
			return fmt.Errorf("leaf %v is in use: %w", a, op.Failure(err, false))
		}
	}
	return nil
}

func (s *session) releaseRoot(a pool.Addr) {
	if s.t.keep != nil {
		s.t.keep.Release(a)
	}
}

// kept makes b the leaf at a as the keeper has it, if there is one and it does.
func (s *session) kept(a pool.Addr, b []byte) (bool, error) {
	if s.t.keep == nil {
		return false, nil
	}
	return s.t.keep.Copy(s, a, b)
}

// offer tells who wants it of leaf l, which is next in the ring, if it was READ.
func (s *session) offer(sc *scan, l *slotted.Leaf) error {
	if s.taker == nil || sc.read>>sc.next&1 == 0 {
		return nil
	}
	return s.taker.Offer(l.Addr, l.Low, l.High, l.Rightmost, s.ring[sc.next], sc.since)
}
