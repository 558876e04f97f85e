package dex

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/record"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Values that are too long for their entries lie in blocks (package blocks). Entries, records and
// frames have references to them. A change with such a value:
//
//  1. WRITE of the block, to a place that no other client knows, and wait: it is complete (G3)
//     before anything refers to it.
//  2. As every change: the record, which has the reference, then the entry in the frame; wait until
//     the log is durable; answer.
//
// So every reference, be it in a record that a replay finds, in a leaf that was written back or in
// a frame, is to a complete block.
//
// The block that a change replaces is garbage as soon as the change's record is durable. From then
// on every way to the key has the new value: the frame; and after a crash the replay, which uses
// only the last record of a key, and writes it to the leaf, whatever the leaf refers to. So until
// it is written back, or the log is replayed, the leaf in the memory server may refer to a block
// that was reused, as it may have old values: no client reads it before. For the same reason a
// replay, which replaces such references, does not free their blocks: they may be in use again.
//
// Garbage is marked dead and retired by the pool's rule: its memory is reused when all operations
// of all clients that were under way have ended. An operation that has the reference is one of
// them.

// retire retires garbage while there are at least so many blocks of it.
func (s *session) retire(least int) error {
	for s.x.lay.Blocks {
		if s.garbage = s.x.garbage.Take(s.garbage[:0], least, s.x.log.Durable()); len(s.garbage) == 0 {
			break
		}
		if err := s.b.Blocks.Retire(s.garbage); err != nil {
			return fmt.Errorf("give back what changes have replaced: %w", err)
		}
	}
	return nil
}

// retired is retire after a change.
func (s *session) retired() error {
	least := blocks.MostTogether
	if invariants.Enabled && s.x.env.Uint64()%4 == 0 {
		least = 1
	}
	if err := s.retire(least); err != nil {
		return fmt.Errorf("the change is made: %w: %w", index.ErrUnknown, err)
	}
	return nil
}

// prepare makes the entry and the record of a change. It writes a long value to a block, unless the
// cache shows that the change will fail: then done is true, and err is the answer.
func (s *session) prepare(p *btree.Path, key, value []byte, fp byte, epoch uint64, m mode) (done bool, err error) {
	switch {
	case m == modify: // not known yet
		return false, nil
	case m == remove:
		s.prepareRemoval(key, epoch)
		return false, nil
	case !s.x.lay.InBlock(len(value)):
		s.prepareInline(key, value, epoch)
		return false, nil
	}
	if m != upsert {
		if o := s.foresee(p, key, fp, m); o.answer != nil {
			return true, s.answer(&o, key, p.Addr())
		}
	}
	return false, s.prepareBlock(p.Addr(), key, value, epoch)
}

func (s *session) prepareRemoval(key []byte, epoch uint64) {
	s.record = record.Append(s.record[:0], record.Delete, epoch, key, nil)
}

func (s *session) prepareInline(key, value []byte, epoch uint64) {
	s.entry = s.x.lay.PutEntry(s.entry[:cap(s.entry)], key, value)
	s.record = record.Append(s.record[:0], record.Put, epoch, key, value)
}

// prepareBlock writes the block of a long value, near the leaf that will refer to it.
func (s *session) prepareBlock(leaf pool.Addr, key, value []byte, epoch uint64) error {
	if err := s.b.Blocks.Write(s.ref[:], value, leaf); err != nil {
		return err
	}
	s.block = blocks.Decode(s.ref[:])
	s.entry = s.x.lay.PutReference(s.entry[:cap(s.entry)], key, s.ref[:])
	s.record = record.Append(s.record[:0], record.Refer, epoch, key, s.ref[:])
	return nil
}

// foresee returns the outcome of a change that the cache shows will fail.
func (s *session) foresee(p *btree.Path, key []byte, fp byte, m mode) (o outcome) {
	f := s.x.cache.Locate(p)
	if f == nil {
		return o
	}
	var st frame.State
	s.value, o.lsn, st = f.Search(s.x.env, s.x.lay, p.Addr(), key, s.value[:0], fp)
	switch {
	case (st == frame.Done || st == frame.InBlock) && m == insert:
		o.answer = index.ErrExists
	case st == frame.NotFound && m == update:
		o.answer = index.ErrNotFound
	}
	return o
}

// freeBlock gives back the block that was written for a change that was not made, unless the log
// has it. If the log had it, and its record is cancelled, a replay looks for it until the
// cancellation is durable.
func (s *session) freeBlock() {
	cancelled := s.pending.Cancelled()
	switch {
	case s.block == (blocks.Reference{}):
		return
	case cancelled != 0 && s.x.log.Durable() < cancelled:
		s.x.garbage.Add(s.block, cancelled)
	default:
		s.b.Blocks.Free(s.block)
	}
	s.block = blocks.Reference{}
}

// again reports, after err, whether a change that needs a block, or a leaf to divide one, is worth
// another try: there was no memory, and some is on its way back. It has waited for that memory
// then. Blocks that deferred changes replaced are garbage when the log is durable, and possibly
// nothing else waits for that. The block of this change is free by then, and no garbage: else each
// try would wait for it alone.
func (s *session) again(err error, m mode) bool {
	if m == remove || !errors.Is(err, index.ErrPoolFull) {
		return false
	}
	if s.durable(max(s.pending.Cancelled(), s.x.garbage.Last())) != nil {
		return false
	}
	s.freeBlock()
	return s.retire(1) == nil && s.b.AwaitMemory()
}

// appendRemote appends the value of the entry of key that was READ, or found by a memory server, in
// the leaf at a, of a range that was taken in an epoch. The entry is kept if it is current; since
// is as for an entry. ok is false if the entry's block does not hold the value.
func (s *session) appendRemote(key, entry, dst []byte, a pool.Addr, since, epoch uint64) (value []byte, ok bool, err error) {
	v := s.x.lay.ValueOf(entry)
	if s.x.lay.HasReference(entry) {
		s.tag.Set(v, epoch)
		s.blockSource = blockSource{leaf: a, since: since}
		return s.long(dst, s.still)
	}
	s.x.rows.Put(key, v, func() bool { return s.x.cache.Current(a, since) })
	return append(dst, v...), true, nil
}

// long appends the value of the session's tag: a kept one, or READ from its block and then kept if
// the leaf still refers to it (right). ok is false if the block does not hold it.
func (s *session) long(dst []byte, right func() bool) (value []byte, ok bool, err error) {
	x := s.x
	if value, ok = x.values.Get(&s.tag, dst); ok {
		return value, true, nil
	}
	if err := x.budget.Rebalance(s.back); err != nil {
		return dst, false, err
	}
	if value, ok, err = s.b.Blocks.AppendValue(dst, blocks.Decode(s.tag[:item.ReferenceBytes])); ok {
		x.values.Put(&s.tag, value[len(dst):], right)
	}
	return value, ok, err
}

// blockSource is where a long value was looked for: in a frame, or in a leaf that was READ.
type blockSource struct {
	f     *frame.Frame
	leaf  pool.Addr
	key   []byte
	fp    byte
	since uint64 // the eviction clock before the READ
}

// leafRefers reports whether the leaf of blockSource, in its frame, has the session's tag for the
// key.
func (s *session) leafRefers() bool {
	q := &s.blockSource
	value, _, st := q.f.Search(s.x.env, s.x.lay, q.leaf, q.key, s.value[:0], q.fp)
	s.value = value
	return st == frame.InBlock && bytes.Equal(value, s.tag[:item.ReferenceBytes])
}

// leafStands reports whether what was READ of the leaf of blockSource is its present state, or was
// when this began.
func (s *session) leafStands() bool {
	return s.x.cache.Current(s.blockSource.leaf, s.blockSource.since)
}
