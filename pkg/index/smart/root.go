package smart

import (
	"encoding/binary"
	"fmt"
	"github.com/dmindex/dmindex/pkg/sum"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
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
	atWay     = art.HeadBytes + art.SlotBytes*art.MostSlots
	rootBytes = atWay + art.SlotBytes

	// mostRoots is how many ways lead on from one root to the next. A load replaces the first root
	// only (publish.go), so there is one; where there are many a way was damaged, and leads back.
	mostRoots = 8
)

// root returns where the root lies, as far as this client knows.
func (t *innerTree) rootAddr() pool.Addr { return pool.Addr(t.top.Load()) }

// rootSlot is a word that leads to the root.
func (t *innerTree) rootSlot() art.Slot {
	at, _ := art.Pack(t.rootAddr())
	return art.InnerSlot(0, art.Direct, at)
}

// wayOf is the way of a root of which b was READ.
func wayOf(b []byte) art.Slot { return getWay(b[atWay:]) }

// getWay is the way, of which b was READ.
func getWay(b []byte) art.Slot { return art.Slot(binary.LittleEndian.Uint64(b)) }

// buildRoot makes the image of a root in b.
func buildRoot(k *sum.Key, b []byte, a pool.Addr, version uint32) []byte {
	h := art.Header{Kind: art.Direct}
	h.Build(k, b, a, version)
	b = b[:rootBytes]
	clear(b[atWay:])
	return b
}

// followWay makes the node where the way of the root at a leads the root of this client. Roots are
// never used again, so it does not matter when the way was READ.
func (t *innerTree) followWay(a pool.Addr, way art.Slot) {
	t.top.CompareAndSwap(uint64(a), uint64(way.Addr()))
}

// rootMoved READs the way of the root where path begins, and reports whether it leads on.
func (s *inner) rootMoved() (bool, error) { return s.rootMovedFrom(s.path[0].node.Addr) }

// rootMovedFrom READs the way of the root at a, and reports whether it leads on.
func (s *inner) rootMovedFrom(a pool.Addr) (bool, error) {
	if err := s.Read(a+atWay, s.words[:art.SlotBytes]); err != nil {
		return false, err
	}
	way := getWay(s.words)
	if way == 0 {
		return false, nil
	}
	s.t.followWay(a, way)
	return true, nil
}

// leadsBack is the error of ways that do not end.
func leadsBack(a pool.Addr) error {
	return fmt.Errorf("root %v was replaced, and from it %d roots lead on, each of them replaced; if a check of the index finds it as well, restore a dump: %w", a, mostRoots, index.ErrFormat)
}

// readRoot READs the root, to s.node, following ways.
func (s *inner) readRoot() error {
	for n := 0; ; {
		a := s.t.rootAddr()
		if err := s.Read(a, s.node[:rootBytes]); err != nil {
			return err
		}
		if !s.fresh.Decode(&s.t.lay, a, art.Direct, s.node) {
			if err := s.Reread(a); err != nil {
				return fmt.Errorf("read the root: %w", err)
			}
			continue
		}
		way := wayOf(s.node)
		if way == 0 {
			s.fresh.Stamp = s.PS.Stamp()
			return nil
		}
		if n++; n > mostRoots {
			return leadsBack(a)
		}
		s.t.followWay(a, way)
	}
}

// rootCopied is the copy of the root, if there is one that this operation may follow.
func (s *inner) rootCopied() *art.Copy {
	c := s.t.root.Load()
	if c == nil || c.Stamp < s.Floor || c.Addr != s.t.rootAddr() {
		return nil
	}
	s.PS.Follows(c.Stamp)
	return c
}

// keepRoot makes c the copy of the root, unless there is a newer one.
func (s *inner) keepRoot(c *art.Copy) {
	for c.Addr == s.t.rootAddr() {
		old := s.t.root.Load()
		if old != nil && old.Addr == c.Addr && old.Stamp > c.Stamp || s.t.root.CompareAndSwap(old, c) {
			return
		}
	}
}

// setWay posts what is queued, and makes the node at to the root in place of that at a, all of
// whose slots are frozen. won: it is. Else somebody else replaced that, and what this session made
// is given back.
func (s *inner) setWay(a, to pool.Addr) (won bool, err error) {
	at, ok := art.Pack(to)
	if !ok {
		return false, fmt.Errorf("a root at %v: %w", to, index.ErrFormat)
	}
	if err := s.awaitStrayed(a); err != nil {
		return false, err
	}
	s.Pause()
	s.PS.CompareSwap(a+atWay, 0, uint64(art.InnerSlot(0, art.Direct, at)), s.words[:art.SlotBytes])
	if err := s.PS.Post(); err != nil {
		s.forget()
		return false, failure(err)
	}
	if found := art.Slot(binary.NativeEndian.Uint64(s.words)); found != 0 {
		s.discard()
		s.t.followWay(a, found)
		return false, s.Retry()
	}
	s.forget()
	s.t.followWay(a, art.InnerSlot(0, art.Direct, at))
	return true, nil
}
