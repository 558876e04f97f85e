package btree

import (
	"bytes"

	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Scans (section 4.4, "Range query"). The leaves that a level-1 node names are READ together, as
// many as the limit seems to need. Each leaf that is used is an image of its own range at its own
// moment, which the design verifies as a whole: so a pair that was there all the time is in it, and
// a pair in it was there. The ranges join without gap or overlap, because a scan goes on exactly
// where the fence of the last leaf ends, whatever the parent says; so leaves that split meanwhile
// neither hide nor repeat a pair.
//
// For each leaf: allowed, then nextLeaf and fits until fits says so and the design has verified the
// leaf (else readAgain), used, allowed again, the pairs that do not lie beyond the bound, advance
// (ScanPairs).

// scan is where a scan stands. What comes next begins at cursor (or, of a reverse scan, ends below
// it).
type scan struct {
	cursor  []byte
	side    fence.Side
	p       Path // of the last descent
	addrs   [MaxRing]pool.Addr
	next, n int // leaves next to n of the ring are read and not used yet
	// a bit for each leaf of the ring that was READ, after the leaf cache's clock showed
	read    uint32
	since   uint64
	hops    int
	bounded bool   // the leaf cache is asked
	bound   []byte // where it ends; see LeafCache
}

// startScan makes sc the scan from start on, or, if reverse, below it. bounded: it ends where the
// leaf cache says (Bound). ok is false if there can be no pairs.
func (s *Session) startScan(sc *scan, start []byte, reverse, bounded bool) (ok bool, err error) {
	if len(start) > 0 || !s.Lay.Uint64 {
		if err := s.Lay.CheckKey(start); err != nil {
			return false, err
		}
	}
	sc.cursor, sc.bounded = start, bounded
	if reverse {
		sc.side = fence.Ending
		return len(start) == 0 || !bytes.Equal(start, s.Lay.Bottom), nil
	}
	if len(start) == 0 {
		sc.cursor = s.Lay.Bottom
	}
	return true, nil
}

// allowed reports whether the scan may go on from the cursor, and up to which bound. It is asked
// before leaves are READ, which would be in vain, and when an image is complete.
func (s *Session) allowed(sc *scan) (ok bool) {
	if !sc.bounded {
		return true
	}
	sc.bound, ok = s.t.leafCache.Bound(s, sc.cursor, sc.side == fence.Ending)
	return ok
}

// nextLeaf returns where the leaf lies in which the scan goes on, and what was READ of it. limit is
// how many pairs are wanted.
func (s *Session) nextLeaf(sc *scan, limit int) (a pool.Addr, b []byte, err error) {
	if sc.next == sc.n {
		if err := s.readLeaves(sc, limit); err != nil {
			return pool.Nil, nil, err
		}
	}
	return sc.addrs[sc.next], s.Ring[sc.next], nil
}

// coversCursor reports whether the leaf of nextLeaf has the cursor in its range. h is its header;
// nil if it has none that verifies. If it does not fit, nextLeaf returns another one, or the same
// once more.
func (s *Session) coversCursor(sc *scan, h *fence.Header) (bool, error) {
	a := sc.addrs[sc.next]
	switch {
	case h == nil && unit.IsDead(a, s.Ring[sc.next]):
		return false, s.descendAgain(sc, a)
	case h == nil:
		grew, err := s.outgrown(a, s.Ring[sc.next])
		if err == nil && !grew {
			return false, s.readAgain(sc)
		}
		sc.next = sc.n
		return false, err
	case h.Beyond(sc.cursor, sc.side):
		// It has split: what comes next is further right.
		return false, s.strayed(sc, h)
	case sc.next == 0 && h.Before(sc.cursor, sc.side):
		// It is where the descent led.
		err := s.misled(sc.p.parent, a, sc.cursor)
		sc.next, sc.hops = sc.n, 0
		return false, err
	case h.Before(sc.cursor, sc.side):
		// The leaf before it has split: what comes next is missing among those that were read.
		return false, s.descendAgain(sc, a)
	}
	return true, nil
}

// noteUsed is called when the leaf of nextLeaf, with header h, fits and has verified, with so many
// pairs.
func (s *Session) noteUsed(sc *scan, h *fence.Header, pairs int) error {
	if s.Owner != nil && sc.read>>sc.next&1 != 0 {
		if err := s.t.leafCache.Admit(s, sc.addrs[sc.next], h.Low, h.High, h.Rightmost, s.Ring[sc.next], sc.since); err != nil {
			return err
		}
	}
	sc.next++
	sc.hops = 0
	s.countPairs(pairs)
	return nil
}

// crosses reports whether the leaf with header h has keys beyond the bound. Its image may be older
// than the division there.
func (sc *scan) crosses(h *fence.Header) bool {
	switch {
	case len(sc.bound) == 0:
		return false
	case sc.side == fence.Ending:
		return item.Below(h.Low, sc.bound)
	}
	return h.Rightmost || item.Below(sc.bound, h.High)
}

// passes reports whether key lies beyond the bound.
func (sc *scan) passes(key []byte) bool {
	if sc.side == fence.Ending {
		return item.Below(key, sc.bound)
	}
	return !item.Below(key, sc.bound)
}

// advance moves the cursor to the end of the leaf with header h. It reports false if nothing comes
// after the leaf, or nothing that is within the bound.
func (s *Session) advance(sc *scan, h *fence.Header) bool {
	if sc.side == fence.Ending {
		if bytes.Equal(h.Low, s.Lay.Bottom) || len(sc.bound) > 0 && !item.Below(sc.bound, h.Low) {
			return false
		}
		s.sep = append(s.sep[:0], h.Low...)
	} else {
		if h.Rightmost || len(sc.bound) > 0 && !item.Below(h.High, sc.bound) {
			return false
		}
		s.sep = append(s.sep[:0], h.High...)
	}
	sc.cursor = s.sep
	return true
}

// readLeaves reads the leaf where the scan goes on, and the ones after it that its parent knows:
// one round trip.
func (s *Session) readLeaves(sc *scan, limit int) error {
	p, err := s.descend(sc.cursor, sc.side, 0)
	if err != nil {
		return err
	}
	s.CountHit(&p)
	sc.p, sc.next, sc.n = p, 0, 1
	sc.addrs[0] = p.addr
	if n := p.parent; n != nil && n.children[p.child] == p.addr {
		step := 1
		if sc.side == fence.Ending {
			step = -1
		}
		want := min(len(s.Ring), s.leavesFrom(n, p.child, sc.cursor, sc.side, limit))
		for i := p.child + step; i >= 0 && i < len(n.children) && sc.n < want; i += step {
			sc.addrs[sc.n] = n.children[i]
			sc.n++
		}
	}
	if sc.read = 0; s.Owner != nil {
		sc.since = s.t.leafCache.Clock()
	}
	for i := range sc.n {
		if kept, err := s.copyCached(sc.addrs[i], s.Ring[i]); err != nil {
			return err
		} else if !kept {
			s.PS.Read(sc.addrs[i], s.Ring[i])
			sc.read |= 1 << i
		}
	}
	if err := s.PS.Post(); err != nil {
		return op.Failure(err, false)
	}
	s.Pause()
	return nil
}

// descendAgain lets the scan go on from the root: what led to the leaf at a is old.
func (s *Session) descendAgain(sc *scan, a pool.Addr) error {
	if sc.p.parent != nil {
		s.evict(sc.p.parent)
	}
	sc.next, sc.hops = sc.n, 0
	return s.Reread(a)
}

// readAgain READs the leaf of nextLeaf once more, which was torn.
func (s *Session) readAgain(sc *scan) error {
	a := sc.addrs[sc.next]
	if err := s.Reread(a); err != nil {
		return err
	}
	return s.readNext(sc, a)
}

// strayed replaces the leaf with header h, which is next in the ring, by its right sibling; after
// several times it starts again from the root.
func (s *Session) strayed(sc *scan, h *fence.Header) error {
	sc.hops++
	most := s.mostHops()
	root, err := s.root()
	if err != nil {
		return err
	}
	now, err := s.evictStale(&sc.p, root, sc.hops)
	if err != nil {
		return err
	}
	if sc.hops > most || sc.p.parent == nil && !now.equal(root) {
		sc.next, sc.hops = sc.n, 0
		return nil
	}
	sc.addrs[sc.next] = h.Sibling
	return s.readNext(sc, h.Sibling)
}

// readNext reads the leaf at a to where the next one of the ring is.
func (s *Session) readNext(sc *scan, a pool.Addr) error {
	sc.read &^= 1 << sc.next
	if kept, err := s.copyCached(a, s.Ring[sc.next]); kept || err != nil {
		return err
	}
	sc.read |= 1 << sc.next
	return s.Read(a, s.Ring[sc.next])
}
