package btree

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/pool"
)

// LeafPairs are the pairs of one leaf at a time, for a scan.
type LeafPairs interface {
	// Entries are those of the pairs, in the order of keys after Sort.
	blocks.Entries

	// Open begins with the leaf at a, of which b was READ, and returns its header; nil if it has
	// none that verifies.
	Open(a pool.Addr, b []byte) *fence.Header

	// Collect collects the pairs of the leaf, which has a header. ok is false if it is torn. It may
	// READ blocks.
	Collect() (ok bool, err error)

	Sort()

	Key(i int) []byte

	// Pair is pair i. long: the entry refers to the value.
	Pair(i int) (key, value []byte, long bool)

	// Same reports whether pairs i and i+1 have the same key. A key that moved within the leaf
	// while that was read may be there twice.
	Same(i int) bool

	// Find is Lookup as a part of an operation.
	Find(key, dst []byte) ([]byte, error)
}

// ScanPairs is Scan of index.Session as a part of an operation, over leaves of any format. bounded:
// it ends where the leaf cache says (Bound).
func (s *Session) ScanPairs(p LeafPairs, bounded bool, start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	if err := s.scanPairs(p, bounded, start, limit, reverse, visit); err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	return nil
}

func (s *Session) scanPairs(p LeafPairs, bounded bool, start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	var sc scan
	if ok, err := s.startScan(&sc, start, reverse, bounded); !ok || err != nil {
		return err
	}
	for limit > 0 && s.allowed(&sc) {
		h, err := s.nextPairs(&sc, p, limit)
		if err != nil {
			return err
		}
		if !s.allowed(&sc) {
			return nil
		}
		seen, more, err := s.emit(&sc, p, h, limit, visit)
		if err != nil {
			return err
		}
		if !more || !s.advance(&sc, h) {
			return nil
		}
		limit -= seen
	}
	return nil
}

// nextPairs makes p what is in the leaf in which the scan goes on, sorted: verified, and with the
// cursor in its range.
func (s *Session) nextPairs(sc *scan, p LeafPairs, limit int) (*fence.Header, error) {
	for {
		a, b, err := s.nextLeaf(sc, limit)
		if err != nil {
			return nil, err
		}
		h := p.Open(a, b)
		fits, err := s.coversCursor(sc, h)
		if fits {
			if fits, err = p.Collect(); err == nil && !fits {
				if !s.allowed(sc) { // it may stay so until the leaf's next owner comes
					return h, nil
				}
				err = s.readAgain(sc)
			}
		}
		if fits && err == nil {
			err = s.noteUsed(sc, h, p.Len())
		}
		if err != nil {
			return nil, err
		}
		if fits {
			p.Sort()
			return h, nil
		}
	}
}

// emit visits what of the leaf with header h lies from the cursor on (or below it, downwards) and
// within the bound, at most limit pairs; more is false if visit had enough. Values in blocks are
// those that the leaf had when it was read.
func (s *Session) emit(sc *scan, p LeafPairs, h *fence.Header, limit int, visit func(key, value []byte) bool) (seen int, more bool, err error) {
	s.Blocks.BeginScan()
	i, step := s.firstPair(sc, p)
	crosses := sc.crosses(h)
	for ; i >= 0 && i < p.Len() && seen < limit; i += step {
		if seen > 0 && p.Same(min(i, i-step)) {
			continue
		}
		key, value, long := p.Pair(i)
		if crosses && sc.passes(key) {
			break
		}
		if long {
			value, err = s.Blocks.Next(p, i, step, limit-seen)
			if err == nil && value == nil {
				if value, err = s.valueNow(p, key); err == index.ErrNotFound {
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

// firstPair is the first one from the cursor on, and the step to the next one.
func (s *Session) firstPair(sc *scan, p LeafPairs) (i, step int) {
	if sc.side == fence.Ending {
		i = p.Len() - 1
		for i >= 0 && len(sc.cursor) > 0 && !item.Below(p.Key(i), sc.cursor) {
			i--
		}
		return i, -1
	}
	for i < p.Len() && item.Below(p.Key(i), sc.cursor) {
		i++
	}
	return i, 1
}

// valueNow is the value that a key has now, for a scan whose leaf leads to a block that does not
// hold it. A leaf that is kept may be old also if it is READ again.
func (s *Session) valueNow(p LeafPairs, key []byte) ([]byte, error) {
	if s.t.HasLeafCache() {
		return nil, s.Blocks.Refused()
	}
	s.Count.Retries++
	value, err := p.Find(key, nil)
	s.Blocks.BeginScan() // its room was used
	return value, err
}
