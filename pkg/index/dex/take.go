package dex

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/replay"
	"github.com/dmindex/dmindex/pkg/index/internal/ranges"
	"github.com/dmindex/dmindex/pkg/index/internal/slottedtree"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Take implements index.Partitioned. It first repairs the unfinished changes of dead clients:
// owners change leaves without their locks, so a later repair would undo changes. Then it divides
// the leaves at both ends, so that each belongs to one range entirely. Then it replays the logs:
// the last record of each key is written to the tree. In a full pool the last two steps alternate
// (package replay).
//
// It takes effect when the table of ranges has the range. It returns no error afterwards, because a
// session may have changed a key of the range by then.
func (x *dex) Take(r pool.Holding) error {
	x.moves.Lock()
	defer x.moves.Unlock()
	s, err := x.tree.NewSession()
	if err != nil {
		return fmt.Errorf("take a range: %w", err)
	}
	if err = x.take(s, r); err != nil {
		return fmt.Errorf("take a range: %w", errors.Join(err, s.Close()))
	}
	x.cache.Clock.RecordAll()
	x.ranges.Store(x.ranges.Load().With(ranges.Span{Start: bytes.Clone(r.Start), End: bytes.Clone(r.End), Epoch: r.Epoch}))
	// Where this range meets another one of this client, their leaves may be merged.
	for _, key := range [][]byte{x.lay.FenceOf(r.Start), x.lay.FenceOf(r.End)} {
		if key != nil {
			_ = s.MergeAt(key) // if it fails, later deletes do it
		}
	}
	// The session is not needed any more. The next operation notices a lost connection.
	_ = s.Close()
	return nil
}

func (x *dex) take(s *slottedtree.Session, r pool.Holding) error {
	if err := s.RepairAll(); err != nil {
		return err
	}
	var ends [][]byte
	for _, key := range [][]byte{x.lay.FenceOf(r.Start), x.lay.FenceOf(r.End)} {
		if key != nil {
			ends = append(ends, key)
		}
	}
	repaired, err := replay.Run(replay.Config{Pool: x.pool, Env: x.env, Lay: x.lay, Condemn: x.condemn}, s, &r, ends)
	x.torn.within.Add(repaired.Within)
	x.torn.locked.Add(repaired.Locked)
	return err
}

// within reports whether f's leaf lies in r, which is so if its low fence does: leaves are divided
// at the ends of ranges.
func within(f *frame.Frame, v *frame.View, r *ranges.Table) bool {
	var low [128]byte
	return r.At(f.LowFence(v, low[:0])) >= 0
}
