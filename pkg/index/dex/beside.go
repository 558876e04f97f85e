package dex

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/record"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool/redo"
)

// A change of a leaf that has no frame appends its record before it READs the leaf, and the batch
// of the log is under way beside the READ: one round trip for both.
//
//	1  latches the key, so that no other session has a record of it under way like this one
//	2  reads the eviction clock, and then finds no frame of the leaf
//	3  appends the record; it stands in the dirty pages, so the log is not truncated beyond it
//	4  reserves a frame for the leaf, locked; posts the READ and the log's batch, and waits for
//	   both
//	5  finds that the frame is new, that no eviction of the leaf was recorded after 2, and that
//	   the leaf holds the key
//	6  under the same lock: evaluates the condition, makes the change, and puts the frame into the
//	   dirty pages in place of the record
//	7  releases frame and latch
//
// If 5 fails, or the change is refused, the record is cancelled: another record says so, which is
// appended before the latch is released. After a failure at 5 the change goes on as any other one,
// and appends its own record under the lock of the right frame. So it does not matter where the key
// turned out to be, nor what became of the leaf.
//
// # Why the order of the log is the order of the changes
//
// A change with a frame appends its record under the frame's lock, after it has evaluated its
// condition: it is plain. Of the records of a key, those that 3 appended are the only ones that
// came before their change. Say 5 has succeeded. Between 2 and 4 the leaf had no frame: none was
// there at 2 nor at 4, and none was evicted in between. No change of this client without the leaf's
// frame, and no other client, changes the leaf. So every earlier change of the key, and its record,
// precede 2, and every later one follows 7. Splits, merges, divisions and bulk loads hold frames of
// the leaves that they change, and record evictions, so they precede 2 or follow 7, too.
//
// If 5 failed, changes of other sessions may come between the record and its cancellation, in any
// order. They are plain. A replay follows the records of a key: a plain one says what the key has,
// whatever was before; a cancellation takes a record back if that is the last one.
//
// # What a replay finds
//
// The record has a condition (package record), unless it is an upsert's or a delete's. When the
// client dies, the log ends anywhere (record.History):
//
//   - There is a later record of the key. That of another change at 3 was appended after the latch
//     was released, when this record was cancelled or its change was made. So a record before the
//     last one that was not cancelled was made, or is followed by a plain one.
//   - The record is the last one, and not cancelled. If its change was made, or will never be
//     answered, the replay may make it. If it was refused, and the cancellation was lost, the
//     replay must not. It evaluates the condition again: on what the record before it says; if
//     there is none, on the leaf in the memory server. The first is what step 6 found. The second
//     is that, or the leaf with this change, because all later changes of the key have a later
//     record, which comes into the log before the leaf is written back. With its own change an
//     insertion finds the key, and changes nothing; an update finds it, and puts the same value
//     there.
//
// An answer that the change was refused waits, as always, for what the leaf's frame shows. It need
// not wait for the cancellation. After step 5 failed, the refusal may depend on a plain record that
// follows this one; then that is durable. Otherwise the key was at the record as at the refusal,
// and the replay refuses, too. But an answer that the change failed, and has not been made, waits
// for the cancellation: if that cannot be made durable, the answer is UNKNOWN.
//
// # Truncation, write-backs, Give, structure changes
//
// The record is in the dirty pages until its frame takes its place, so the log keeps it until the
// frame is written back, which needs the frame's lock. A leaf that is written back by others
// meanwhile lacks the change, and the log has it. A cancelled record may be truncated at any time;
// the cancellation comes after it, so it is truncated later. The ring has a reserve for the
// cancellations of all records under way (redo.Log.Reserve): they wait for no truncation, which
// their records may prevent. Where it has no room for one more, no such record is appended.
//
// # A leaf without room
//
// It is divided at 6, under the lock of its frame, and the change is not made: the record is
// cancelled, and the change goes on as any other one (grow.go).
//
// Give: no session is in an operation on the range's keys, so none of its records is under way.
//
// Long values have no such record: their block must be complete before it, and writing it is a
// round trip of its own. Nor have modifications, which do not know their value before they READ the
// leaf.

// mayAppendBeside reports whether a change of a leaf without a frame may append its record at once.
func (s *session) mayAppendBeside(p *btree.Path, m mode) bool {
	if m > remove || s.record[0] == record.Refer {
		return false
	}
	_, had := s.b.Remembers(p.Addr()) // then there is no READ
	return !had
}

// changeBeside makes a change of the leaf where p leads, which has no frame, as described above.
// made: o is its outcome. Otherwise nothing has happened, and the caller goes on from p, which may
// lead elsewhere.
func (s *session) changeBeside(p *btree.Path, key []byte, fp byte, epoch uint64, m mode, hops *int) (o outcome, made bool, err error) {
	if err := s.x.budget.Rebalance(s.back); err != nil {
		return o, false, err
	}
	if !s.latch(key) {
		return o, false, nil
	}
	a := p.Addr()
	since := s.x.cache.Clock.Now()
	op.Pause(s.x.env)
	if s.x.cache.Find(a) != nil {
		s.unlatch()
		return o, false, nil
	}
	if st, err := s.appendBeside(m); st != frame.Done || err != nil {
		s.unlatch()
		return o, false, err
	}
	f, err := s.fetchBeside(p, key, since, hops)
	if f != nil {
		s.x.cache.Locate(p) // its parent leads to it from now on, as to every leaf found by its key
		op.Pause(s.x.env)
		if o = s.applyIn(f, a, key, fp, epoch, m); !o.released {
			f.Hit()
			f.Unlock()
		}
		err = o.err
	}
	made = f != nil && err == nil && o.st == frame.Done
	switch {
	case s.pending.LSN() == 0:
		s.x.wal.CountMade()
	default:
		if made { // refused
			s.x.wal.CountRefused()
		}
		op.Pause(s.x.env)
		if e := s.cancel(key, epoch); e != nil {
			made, err = false, errors.Join(err, e)
		}
	}
	op.Pause(s.x.env)
	s.unlatch()
	return o, made, err
}

// latch acquires the latch of key for the session's record; false if that is not to be had now.
func (s *session) latch(key []byte) bool { return s.x.wal.Latch(&s.pending, s.x.hash.Of(key)) }

func (s *session) unlatch() { s.x.wal.Unlatch(&s.pending) }

// appendBeside appends the session's record, with the condition of m. Done: it is in the dirty
// pages. logFull: the ring has no room for it.
func (s *session) appendBeside(m mode) (frame.State, error) {
	plain := s.record[0]
	switch m {
	case insert:
		s.record[0] = record.PutIfAbsent
	case update:
		s.record[0] = record.PutIfPresent
	}
	defer func() { s.record[0] = plain }()
	for {
		err := s.x.wal.Begin(s.log, &s.pending, s.record)
		switch {
		case err == nil:
			return frame.Done, nil
		case errors.Is(err, redo.ErrFull):
			return logFull, nil
		case err != redo.ErrBusy:
			return frame.Done, s.x.condemn(err)
		}
		if err := s.awaitLog(); err != nil {
			return logBusy, err
		}
	}
}

// fetchBeside READs the leaf, beside the record. It returns a frame, locked, with the leaf, if that
// holds key and has had no frame since the record was appended; else nil.
func (s *session) fetchBeside(p *btree.Path, key []byte, since uint64, hops *int) (*frame.Frame, error) {
	op.Pause(s.x.env)
	a, b := p.Addr(), s.b.Staging()
	s.prefetch = prefetch{addr: a, since: since, record: s.pending.LSN()}
	f, fresh, err := s.x.cache.Reserve(a, true, s.yield)
	if err != nil || f == nil || !fresh {
		if err == nil && f == nil {
			err = s.b.Retry()
		}
		return nil, err
	}
	op.Pause(s.x.env)
	if s.x.cache.Clock.After(a, since) {
		s.x.cache.Drop(f)
		return nil, nil
	}
	s.x.fetched.Add(1)
	if err := s.readLeaf(f); err != nil {
		return nil, err
	}
	var l slotted.Leaf
	kept, err := s.admit(f, b, l.Is(s.x.lay, a, b, key) && s.owns(&l))
	switch {
	case kept:
		return f, nil
	case err != nil:
		return nil, err
	}
	_, err = s.b.Judge(p, &l, key, b, hops)
	return nil, err
}

// cancel appends that the session's record was not, and will not be, made. After an error the
// client is given up, so the client that replays its log decides; nothing is truncated any more.
func (s *session) cancel(key []byte, epoch uint64) error {
	if err := s.x.wal.Cancel(s.log, &s.pending, key, epoch); err != nil {
		err = s.x.condemn(err)
		s.pending.Forget() // not before: the log would be truncated beyond the record
		return err
	}
	return nil
}

// awaitCancelled is called when a change ends. After a failure it waits until the cancellation of
// its record is durable. If that fails the outcome is unknown.
func (s *session) awaitCancelled(err error) error {
	q := &s.pending
	cancelled := q.Cancelled()
	q.ForgetCancelled()
	if invariants.Enabled {
		invariants.Check(q.IsIdle(), "a change has ended, and its record at %d is neither made nor cancelled", q.LSN())
	}
	if err == nil || cancelled == 0 || err == index.ErrNotFound || err == index.ErrExists || errors.Is(err, index.ErrUnknown) {
		return err
	}
	if e := s.durable(cancelled); e != nil {
		return op.Failure(errors.Join(err, e), true)
	}
	return err
}
