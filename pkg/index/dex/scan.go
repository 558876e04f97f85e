package dex

import (
	"bytes"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// The end of a scan. A session's scan may begin on owned keys and come to a range that is being, or
// was, given. The next owner's changes are not seen here, so the scan ends there.
//
//   - The operation begins before the scan first loads the ranges. Every leaf that it reaches is of
//     a range that was this client's then. The epochs preserve what others remove from such a leaf,
//     and retire, until the scan is over. So the blocks exist to which the image of a leaf refers,
//     even an old one.
//   - A pair is shown only if this client has had its range from that first load until the image of
//     the leaf was complete. So no other client changed the leaf before it was READ. A range that
//     was given and taken again in between has another epoch.
//   - The image of a leaf may be older than its division at an end of the range. So its pairs are
//     compared with the bound.
//
// A move during the last visits is not noticed: these pairs are what was there before.

// Scan implements index.Session. It ends where the ranges end that this client has had without a
// gap since the scan began.
func (s *session) Scan(start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	s.b.Begin()
	defer s.b.End()
	if reverse && len(start) > 0 && bytes.Equal(start, s.x.low) {
		return nil // nothing is below the lowest key
	}
	s.reach.Begin(s.x.ranges.Load())
	op.Pause(s.x.env)
	from := start
	if len(start) == 0 && !reverse {
		from = s.x.low
	}
	if !s.reach.Starts(from, reverse) {
		return fmt.Errorf("scan: %w", index.ErrNotOwner)
	}
	return s.b.ScanWithin(start, limit, reverse, visit)
}

// Bound implements btree.LeafCache.
func (x *dex) Bound(b *btree.Session, cursor []byte, reverse bool) (bound []byte, ok bool) {
	return b.Owner.(*session).reach.Bound(x.ranges.Load(), cursor, reverse)
}

// Clock implements btree.LeafCache.
func (x *dex) Clock() uint64 { return x.cache.Clock.Now() }

// Admit implements btree.LeafCache: a leaf that a scan READ gets a frame if it is worth one. What
// the scan READ is the leaf's present state if the leaf has no frame and was not evicted since
// before the READ (bufferpool.Clock). The new frame's lock prevents later changes. A scan may READ
// the first leaf of the range after its own. This client may give that range and take it again
// meanwhile, changed by other clients, which record nothing here. That is why taking a range
// records an eviction of all leaves.
func (x *dex) Admit(b *btree.Session, a pool.Addr, low, high []byte, rightmost bool, image []byte, since uint64) error {
	s := b.Owner.(*session)
	if err := s.x.budget.Rebalance(s.back); err != nil {
		return err
	}
	s.prefetch = prefetch{done: true} // nothing is READ with what is written back
	f, fresh, err := s.x.cache.Reserve(a, false, s.yield)
	if err != nil || !fresh {
		return err
	}
	kept, err := s.admit(f, image, s.x.ranges.Load().Covers(low, high, rightmost) && !s.x.cache.Clock.After(a, since))
	if kept {
		f.Hit()
		f.Unlock()
	}
	return err
}
