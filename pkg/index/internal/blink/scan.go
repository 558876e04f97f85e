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

// Scans (section 4.4, "Range query"). The leaves that a level-1 node names are READ together, as
// many as the limit seems to need. Each leaf that is used is an image of its own range at its own
// moment: every slot verifies, so a pair that was there all the time is in it, and a pair in it was
// there. The ranges join without gap or overlap, because a scan goes on exactly where the fence of
// the last leaf ends, whatever the parent says; so leaves that split meanwhile neither hide nor
// repeat a pair.

// maxRing is how many leaves a scan reads at once at most.
const maxRing = 16

// scan is where a scan stands. What comes next begins at cursor (or, of a reverse scan, ends below
// it).
type scan struct {
	cursor  []byte
	side    fence.Side
	p       path // of the last descent
	addrs   [maxRing]pool.Addr
	next, n int // leaves next to n of the ring are read and not used yet
	// a bit for each leaf of the ring that was READ, after the leaf cache's clock showed
	read  uint32
	since uint64
	hops  int
	bound []byte // where it ends; see LeafCache
}

// Scan implements index.Session.
func (s *session) Scan(start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	s.Begin()
	defer s.End()
	return s.scan(false, start, limit, reverse, visit)
}

// ScanWithin is Scan as a part of an operation, and ends where the leaf cache says (Bound).
func (s *session) ScanWithin(start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	return s.scan(true, start, limit, reverse, visit)
}

func (s *session) scan(bounded bool, start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	if len(start) > 0 || !s.lay.Uint64 {
		if err := s.lay.CheckKey(start); err != nil {
			return fmt.Errorf("scan: %w", err)
		}
	}
	sc := scan{cursor: start}
	if reverse {
		if sc.side = fence.Ending; len(start) > 0 && bytes.Equal(start, s.lay.Bottom) {
			return nil // nothing is below the lowest key
		}
	} else if len(start) == 0 {
		sc.cursor = s.lay.Bottom
	}
	for limit > 0 {
		if bounded { // else leaves were READ in vain
			if _, ok := s.t.leaves.Bound(s, sc.cursor, reverse); !ok {
				return nil
			}
		}
		var l slotted.Leaf
		if err := s.nextLeaf(&sc, &l, limit); err != nil {
			return fmt.Errorf("scan: %w", err)
		}
		if sc.bound = nil; bounded {
			var ok bool
			if sc.bound, ok = s.t.leaves.Bound(s, sc.cursor, reverse); !ok {
				return nil
			}
		}
		seen, more, err := s.emit(&sc, &l, limit, visit)
		if err != nil {
			return fmt.Errorf("scan: %w", err)
		}
		more = more && !sc.ends(&l, s.lay.Bottom)
		if reverse {
			s.sep = append(s.sep[:0], l.Low...)
		} else {
			s.sep = append(s.sep[:0], l.High...)
		}
		if !more {
			return nil
		}
		limit -= seen
		sc.cursor = s.sep
	}
	return nil
}

// ends reports whether the scan ends with leaf l: nothing comes after it, or nothing that is within
// the bound.
func (sc *scan) ends(l *slotted.Leaf, bottom []byte) bool {
	if sc.side == fence.Ending {
		return bytes.Equal(l.Low, bottom) || len(sc.bound) > 0 && !item.Below(sc.bound, l.Low)
	}
	return l.Rightmost || len(sc.bound) > 0 && !item.Below(l.High, sc.bound)
}

// passes reports whether key lies beyond the bound.
func (sc *scan) passes(key []byte) bool {
	if sc.side == fence.Ending {
		return item.Below(key, sc.bound)
	}
	return !item.Below(key, sc.bound)
}

// crosses reports whether leaf l has keys beyond the bound. Its image may be older than the
// division there.
func (sc *scan) crosses(l *slotted.Leaf) bool {
	switch {
	case len(sc.bound) == 0:
		return false
	case sc.side == fence.Ending:
		return item.Below(l.Low, sc.bound)
	}
	return l.Rightmost || item.Below(sc.bound, l.High)
}

// emit visits what of the leaf lies from the cursor on (or below it, downwards) and within the
// bound, at most limit pairs; more is false if visit had enough. A key that moved to another slot
// while the leaf was read may be there twice; it counts once. Values in blocks are those that the
// leaf had when it was read.
func (s *session) emit(sc *scan, l *slotted.Leaf, limit int, visit func(key, value []byte) bool) (seen int, more bool, err error) {
	s.Blocks.BeginScan()
	p := &s.pairs
	i, step := 0, 1
	if sc.side == fence.Ending {
		i, step = len(p.List)-1, -1
		for i >= 0 && len(sc.cursor) > 0 && !item.Below(p.Key(i), sc.cursor) {
			i--
		}
	} else {
		for i < len(p.List) && item.Below(p.Key(i), sc.cursor) {
			i++
		}
	}
	crosses := sc.crosses(l)
	for ; i >= 0 && i < len(p.List) && seen < limit; i += step {
		if seen > 0 && p.Same(min(i, i-step)) {
			continue
		}
		key, value := p.Pair(i)
		if crosses && sc.passes(key) {
			break
		}
		if s.lay.HasReference(p.Entry(i)) {
			if value, err = s.Blocks.Next(p, i, step, limit-seen); err == nil && value == nil {
				if s.t.leaves != nil {
					return seen, false, s.refused()
				}
				if value, err = s.valueNow(key); err == index.ErrNotFound {
					continue
				}
			}
			if err != nil {
				return seen, false, err
			}
		}
		seen++
		if !visit(key, value) {
			return seen, false, nil
		}
	}
	return seen, true, nil
}

// valueNow is the value that a key has now, for a scan whose leaf leads to a block that does not
// hold it.
func (s *session) valueNow(key []byte) ([]byte, error) {
	s.Count.Retries++
	value, err := s.lookup(key, nil)
	s.Blocks.BeginScan() // its room was used
	return value, err
}

// nextLeaf makes l the leaf in which the scan goes on, and s.pairs what is in it, sorted: verified,
// and with the cursor in its range.
func (s *session) nextLeaf(sc *scan, l *slotted.Leaf, limit int) error {
	for {
		if sc.next == sc.n {
			if err := s.readLeaves(sc, limit); err != nil {
				return err
			}
		}
		addr := sc.addrs[sc.next]
		if !l.Open(s.lay, addr, s.ring[sc.next]) {
			if unit.IsDead(addr, s.ring[sc.next]) {
				if err := s.descendAgain(sc, addr); err != nil {
					return err
				}
				continue
			}
			if grew, err := s.outgrown(addr, s.ring[sc.next]); err != nil {
				return err
			} else if grew {
				sc.next = sc.n
				continue
			}
			if err := s.readOnce(sc, addr); err != nil {
				return err
			}
			continue
		}
		switch {
		case l.Beyond(sc.cursor, sc.side):
			// It has split: what comes next is further right.
			if err := s.strayed(sc, l); err != nil {
				return err
			}
			continue
		case sc.next == 0 && l.Before(sc.cursor, sc.side):
			// It is where the descent led.
			if err := s.misled(sc.p.parent, addr, sc.cursor); err != nil {
				return err
			}
			sc.next, sc.hops = sc.n, 0
			continue
		case l.Before(sc.cursor, sc.side):
			// The leaf before it has split: what comes next is missing among those that were read.
			if err := s.descendAgain(sc, addr); err != nil {
				return err
			}
			continue
		}
		if !l.Collect(&s.pairs) {
			if err := s.readOnce(sc, addr); err != nil {
				return err
			}
			continue
		}
		if err := s.offer(sc, l); err != nil {
			return err
		}
		sc.next++
		sc.hops = 0
		s.met(len(s.pairs.List))
		s.pairs.Sort()
		return nil
	}
}

// readLeaves reads the leaf where the scan goes on, and the ones after it that its parent knows:
// one round trip.
func (s *session) readLeaves(sc *scan, limit int) error {
	p, err := s.descend(sc.cursor, sc.side, 0)
	if err != nil {
		return err
	}
	s.hit(&p)
	sc.p, sc.next, sc.n = p, 0, 1
	sc.addrs[0] = p.addr
	if n := p.parent; n != nil && n.children[p.child] == p.addr {
		step := 1
		if sc.side == fence.Ending {
			step = -1
		}
		want := min(len(s.ring), s.reach(n, p.child, sc.cursor, sc.side, limit))
		for i := p.child + step; i >= 0 && i < len(n.children) && sc.n < want; i += step {
			sc.addrs[sc.n] = n.children[i]
			sc.n++
		}
	}
	if sc.read = 0; s.Owner != nil {
		sc.since = s.t.leaves.Clock()
	}
	for i := range sc.n {
		if kept, err := s.kept(sc.addrs[i], s.ring[i]); err != nil {
			return err
		} else if !kept {
			s.PS.Read(sc.addrs[i], s.ring[i])
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
func (s *session) descendAgain(sc *scan, a pool.Addr) error {
	if sc.p.parent != nil {
		s.drop(sc.p.parent)
	}
	sc.next, sc.hops = sc.n, 0
	return s.Reread(a)
}

// readOnce reads the leaf that is next in the ring again, which was torn.
func (s *session) readOnce(sc *scan, a pool.Addr) error {
	if err := s.Reread(a); err != nil {
		return err
	}
	return s.readNext(sc, a)
}

// strayed replaces leaf l, which is next in the ring, by its right sibling; after several times it
// starts again from the root.
func (s *session) strayed(sc *scan, l *slotted.Leaf) error {
	sc.hops++
	most := s.mostHops()
	root, err := s.root()
	if err != nil {
		return err
	}
	now, err := s.stale(&sc.p, root, sc.hops)
	if err != nil {
		return err
	}
	if sc.hops > most || sc.p.parent == nil && !now.is(root) {
		sc.next, sc.hops = sc.n, 0
		return nil
	}
	sc.addrs[sc.next] = l.Sibling
	return s.readNext(sc, l.Sibling)
}

// readNext reads the leaf at a to where the next one of the ring is.
func (s *session) readNext(sc *scan, a pool.Addr) error {
	sc.read &^= 1 << sc.next
	if kept, err := s.kept(a, s.ring[sc.next]); kept || err != nil {
		return err
	}
	sc.read |= 1 << sc.next
	return s.Read(a, s.ring[sc.next])
}
