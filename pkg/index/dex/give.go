package dex

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/ranges"
)

// A range is given while its requests wait, so the time that this takes is what users notice of a
// handover. No session is in an operation on its keys (index.Partitioned). Sessions go on with keys
// beside it, whose leaves are neighbours of the range's. The steps, and what sessions may do from
// each of them on:
//
//  1. The range is marked as leaving. A merge that begins from now on claims no leaf of it (Claim,
//     ranges.Table.MayMerge).
//  2. Merges of this client that are under way are awaited. A merge asks for its claims while it
//     holds the client's merger, and holds it to its end. So a merge that gets the merger after
//     this step sees the mark.
//  3. The leaf at the lower end is divided, then the one at the upper end, each under its frame's
//     lock; that also drops the frame. Leaves across an end were the only leaves with keys of the
//     range that sessions use. From here on no leaf lies across an end: splits make leaves smaller,
//     and a merge across an end would need a leaf of the range.
//  4. The range is removed from the table of ranges, and the mark with it. No session makes frames
//     for its leaves any more: a session that READ one before checks the ranges under the new
//     frame's lock. Merges across its ends are refused, because half of the keys are not this
//     client's.
//  5. Its dirty leaves are written back, many in one round trip. They are in the dirty pages, so
//     no other frames are examined.
//  6. All of its frames are dropped. A dirty one that 5 skipped is written back now.
//  7. Its kept entries are removed.
//
// Other clients. Until 4 is over this client has the range and what lies beside it, so no other
// client merges or divides leaves there. Clients that own the keys beyond an end of what this
// client has merge only leaves that are entirely theirs; a leaf that ends where their keys begin is
// not. The next owner divides at the range's ends as well, and finds that done.
//
// A leaf that an inner node does not know of yet seems to belong to its left neighbour, by that
// node. Claim then refuses too much, never too little, and a merge checks both leaves under their
// locks before it changes them.
//
// After an error in 1 to 3 the mark is taken back: the range is this client's as before, divided or
// not, and its leaves may be merged again. After an error in 5 to 7 the range has left already.
// Either way Give may be called again and begins at 1.
//
// Only 3 allocates memory of the pool, so ErrPoolFull says that the range has not left. Sessions
// may use it again, and the move may wait for memory: 1 to 3 drop no record of the log, frames that
// 3 drops were written back before, and a boundary within this client's keys is an ordinary one. To
// others it looks as if this client had split a leaf.
//
// 7 follows 6, because a session that evicts a leaf meanwhile keeps entries of it (demote) before
// its frame gets another leaf. 6 waits for the lock of such a frame, so 7 finds these entries.
//
// 5 holds the locks of several frames at once. It never waits for a lock meanwhile: before that it
// posts its requests and releases them. Give waits in 2 with no lock but moves, which no operation
// acquires.
//
// Take, Give and BulkLoad exclude each other (dex.moves). So a replay, which merges leaves of a
// range that is not served yet, is never under way in a Give.

// Give implements index.Partitioned.
func (x *dex) Give(start, end []byte) (written int, err error) {
	x.moves.Lock()
	defer x.moves.Unlock()
	s, err := x.newSession()
	if err != nil {
		return 0, fmt.Errorf("give a range: %w", err)
	}
	given := ranges.Span{Start: bytes.Clone(start), End: bytes.Clone(end)}
	if err = s.prepareGive(given); err == nil {
		x.ranges.Store(x.ranges.Load().Without(given.Start, given.End))
		s.b.Begin()
		written, err = s.flushRange(ranges.Of(given))
		s.b.End()
		if invariants.Enabled && errors.Is(err, index.ErrPoolFull) {
			panic(fmt.Sprintf("dex: a range that has left finds no memory: %v", err))
		}
	}
	if err = errors.Join(err, s.Close()); err != nil {
		return written, fmt.Errorf("give a range: %w", err)
	}
	return written, nil
}

// prepareGive is steps 1 to 3. After an error nothing is marked.
func (s *session) prepareGive(given ranges.Span) error {
	x := s.x
	before := x.ranges.Load()
	x.ranges.Store(before.Giving(given))
	s.b.Begin()
	err := s.b.AwaitMerges()
	s.b.End()
	for _, key := range [][]byte{x.lay.FenceOf(given.Start), x.lay.FenceOf(given.End)} {
		if key != nil && err == nil && before.At(key) >= 0 {
			err = s.splitAt(key)
		}
	}
	if err != nil {
		x.ranges.Store(before)
	}
	return err
}

// flushRange is steps 5 to 7.
func (s *session) flushRange(given *ranges.Table) (written int, err error) {
	var g flusher
	if err := g.start(s); err != nil {
		return 0, err
	}
	err = s.writeBack(&g, given)
	if err = errors.Join(err, g.ps.Close()); err != nil {
		return g.written, err
	}
	if err := s.x.cache.Each(func(f *frame.Frame) error { return s.forget(f, given) }); err != nil {
		return g.written, err
	}
	return g.written, s.x.rows.DropIf(func(key []byte) bool { return given.At(key) >= 0 }, s.b.Retry)
}

// writeBack is step 5.
func (s *session) writeBack(g *flusher, given *ranges.Table) error {
	defer g.release()
	for _, f := range s.x.wal.Dirty() {
		locked, err := s.lockDirty(g, f)
		if err != nil {
			return err
		}
		var v frame.View
		switch {
		case !locked:
		case f.Open(&v) && within(f, &v, given):
			err = g.add(f)
		default:
			f.Unlock()
		}
		if err != nil {
			return err
		}
	}
	return g.post()
}

// lockDirty acquires the lock of f, unless f is clean by now. It does not wait with other locks.
func (s *session) lockDirty(g *flusher, f *frame.Frame) (bool, error) {
	for !f.TryLock() {
		if err := g.post(); err != nil {
			return false, err
		}
		if f.RecLSN() == 0 {
			return false, nil
		}
		if err := s.b.Retry(); err != nil {
			return false, err
		}
	}
	return true, nil
}
