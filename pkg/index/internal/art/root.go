package art

import (
	"encoding/binary"
	"fmt"
	"github.com/dmindex/dmindex/pkg/sum"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// The root is the one node that has no parent's slot. It is of type direct, and has a word behind
// its slots, the way: 0, or an inner node's word that says where the root is now. The superblock
// names the first root for ever. Only a bulk load replaces a root, and whoever finds one that a
// load froze and did not replace. The way is set once, from 0, after all slots of the root were
// frozen. So what holds of a node and its parent's slot holds of a root and its way: a frozen slot
// of a root whose way is 0 at a moment t says at t what the tree has.
//
// Roots that were replaced are not used again: who has only the superblock begins there. They are
// few, since a bulk load takes an index that was never loaded.
const (
	AtWay     = HeadBytes + SlotBytes*mostSlots
	RootBytes = AtWay + SlotBytes

	// mostRoots is how many ways lead on from one root to the next. A load replaces the first root
	// only, so there is one; where there are many a way was damaged, and leads back.
	mostRoots = 8
)

// RootAddr returns where the root lies, as far as this client knows.
func (t *Tree) RootAddr() pool.Addr { return pool.Addr(t.top.Load()) }

// RootSlot is a word that leads to the root.
func (t *Tree) RootSlot() Slot {
	at, _ := Pack(t.RootAddr())
	return InnerSlot(0, Direct, at)
}

// WayOf is the way of a root of which b was READ.
func WayOf(b []byte) Slot { return getWay(b[AtWay:]) }

// getWay is the way, of which b was READ.
func getWay(b []byte) Slot { return Slot(binary.LittleEndian.Uint64(b)) }

// buildRoot makes the image of a root in b.
func buildRoot(k *sum.Key, b []byte, a pool.Addr, version uint32) []byte {
	h := Header{Outline: Outline{Kind: Direct}}
	h.Build(k, b, a, version)
	b = b[:RootBytes]
	clear(b[AtWay:])
	return b
}

// FollowWay makes the node where the way of the root at a leads the root of this client. Roots are
// never used again, so it does not matter when the way was READ.
func (t *Tree) FollowWay(a pool.Addr, way Slot) {
	t.top.CompareAndSwap(uint64(a), uint64(way.Addr()))
}

// rootMoved READs the way of the root where path begins, and reports whether it leads on.
func (s *Session) rootMoved() (bool, error) { return s.RootMovedFrom(s.Path[0].Node.Addr) }

// RootMovedFrom READs the way of the root at a, and reports whether it leads on.
func (s *Session) RootMovedFrom(a pool.Addr) (bool, error) {
	if err := s.Read(a+AtWay, s.Answers[:SlotBytes]); err != nil {
		return false, err
	}
	way := getWay(s.Answers)
	if way == 0 {
		return false, nil
	}
	s.t.FollowWay(a, way)
	return true, nil
}

// leadsBack is the error of ways that do not end.
func leadsBack(a pool.Addr) error {
	return fmt.Errorf("root %v was replaced, and from it %d roots lead on, each of them replaced; if a check of the index finds it as well, restore a dump: %w", a, mostRoots, index.ErrFormat)
}

// readRoot READs the root, to s.Node, following ways.
func (s *Session) readRoot() error {
	for n := 0; ; {
		a := s.t.RootAddr()
		if err := s.Read(a, s.Node[:RootBytes]); err != nil {
			return err
		}
		if !s.Fresh.Decode(&s.t.lay, a, Direct, s.Node) {
			if err := s.Reread(a); err != nil {
				return fmt.Errorf("read the root: %w", err)
			}
			continue
		}
		way := WayOf(s.Node)
		if way == 0 {
			s.Fresh.Stamp = s.PS.Stamp()
			return nil
		}
		if n++; n > mostRoots {
			return leadsBack(a)
		}
		s.t.FollowWay(a, way)
	}
}

// rootCopied is the copy of the root, if there is one that this operation may follow.
func (s *Session) rootCopied() *Copy {
	c := s.t.Root.Load()
	if c == nil || c.Stamp < s.Floor || c.Addr != s.t.RootAddr() {
		return nil
	}
	s.PS.Follows(c.Stamp)
	return c
}

// keepRoot makes c the copy of the root, unless there is a newer one.
func (s *Session) keepRoot(c *Copy) {
	for c.Addr == s.t.RootAddr() {
		old := s.t.Root.Load()
		if old != nil && old.Addr == c.Addr && old.Stamp > c.Stamp || s.t.Root.CompareAndSwap(old, c) {
			return
		}
	}
}

// setWay posts what is queued, and makes the node at to the root in place of that at a, all of
// whose slots are frozen. won: it is. Else somebody else replaced that, and what this session made
// is given back.
func (s *Session) setWay(a, to pool.Addr) (won bool, err error) {
	at, ok := Pack(to)
	if !ok {
		return false, fmt.Errorf("a root at %v: %w", to, index.ErrFormat)
	}
	if err := s.awaitStrayed(a); err != nil {
		return false, err
	}
	s.Pause()
	s.PS.CompareSwap(a+AtWay, 0, uint64(InnerSlot(0, Direct, at)), s.Answers[:SlotBytes])
	if err := s.PS.Post(); err != nil {
		s.Forget()
		return false, failure(err)
	}
	if found := Slot(binary.NativeEndian.Uint64(s.Answers)); found != 0 {
		s.Discard()
		s.t.FollowWay(a, found)
		return false, s.Retry()
	}
	s.Forget()
	s.t.FollowWay(a, InnerSlot(0, Direct, at))
	return true, nil
}
