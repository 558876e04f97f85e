package slottedtree

import (
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
)

// Scan implements index.Session.
func (s *Session) Scan(start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	s.Begin()
	defer s.End()
	return s.scan(false, start, limit, reverse, visit)
}

// ScanWithin is Scan as a part of an operation, and ends where the leaf cache says (Bound).
func (s *Session) ScanWithin(start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	return s.scan(true, start, limit, reverse, visit)
}

func (s *Session) scan(bounded bool, start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	var sc btree.Scan
	if ok, err := s.StartScan(&sc, start, reverse, bounded); err != nil {
		return explain("scan", err)
	} else if !ok {
		return nil
	}
	for limit > 0 && s.Allowed(&sc) {
		var l slotted.Leaf
		if err := s.nextLeaf(&sc, &l, limit); err != nil {
			return explain("scan", err)
		}
		if !s.Allowed(&sc) {
			return nil
		}
		seen, more, err := s.emit(&sc, &l, limit, visit)
		if err != nil {
			return explain("scan", err)
		}
		if !more || !s.Advance(&sc, &l.Header) {
			return nil
		}
		limit -= seen
	}
	return nil
}

// emit visits what of the leaf lies from the cursor on (or below it, downwards) and within the
// bound, at most limit pairs; more is false if visit had enough. A key that moved to another slot
// while the leaf was read may be there twice; it counts once. Values in blocks are those that the
// leaf had when it was read.
func (s *Session) emit(sc *btree.Scan, l *slotted.Leaf, limit int, visit func(key, value []byte) bool) (seen int, more bool, err error) {
	s.Blocks.BeginScan()
	p := &s.pairs
	i, step := 0, 1
	if sc.Side == fence.Ending {
		i, step = len(p.List)-1, -1
		for i >= 0 && len(sc.Cursor) > 0 && !item.Below(p.Key(i), sc.Cursor) {
			i--
		}
	} else {
		for i < len(p.List) && item.Below(p.Key(i), sc.Cursor) {
			i++
		}
	}
	crosses := sc.Crosses(&l.Header)
	for ; i >= 0 && i < len(p.List) && seen < limit; i += step {
		if seen > 0 && p.Same(min(i, i-step)) {
			continue
		}
		key, value := p.Pair(i)
		if crosses && sc.Passes(key) {
			break
		}
		if s.Lay.HasReference(p.Entry(i)) {
			if value, err = s.Blocks.Next(p, i, step, limit-seen); err == nil && value == nil {
				if s.t.HasLeafCache() {
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
func (s *Session) valueNow(key []byte) ([]byte, error) {
	s.Count.Retries++
	value, err := s.Find(key, nil)
	s.Blocks.BeginScan() // its room was used
	return value, err
}

// nextLeaf makes l the leaf in which the scan goes on, and s.pairs what is in it, sorted: verified,
// and with the cursor in its range.
func (s *Session) nextLeaf(sc *btree.Scan, l *slotted.Leaf, limit int) error {
	for {
		a, b, err := s.NextLeaf(sc, limit)
		if err != nil {
			return err
		}
		var h *fence.Header
		if l.Open(s.Lay, a, b) {
			h = &l.Header
		}
		fits, err := s.Fits(sc, h)
		if fits && !l.Collect(&s.pairs) {
			fits, err = false, s.ReadAgain(sc)
		}
		if err != nil {
			return err
		}
		if fits {
			if err := s.Used(sc, h, len(s.pairs.List)); err != nil {
				return err
			}
			s.pairs.Sort()
			return nil
		}
	}
}
