package dex

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/ranges"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/redo"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// flush writes f back, whose lock the caller holds. pool.ErrTimeout: the operation's limit is over
// before the log is durable up to the last change of f, which is as dirty as before. After another
// error this client is given up, because the effect of its requests is unknown.
func (x *dex) flush(by *btree.Session, log *redo.Appender, f *frame.Frame) error {
	return x.flushAnd(by, log, f, by.Staging(), nil)
}

// flushAnd is flush with a buffer for what is written, and with the READ of a leaf in the same
// round trip.
func (x *dex) flushAnd(by *btree.Session, log *redo.Appender, f *frame.Frame, b []byte, next *prefetch) error {
	if f.RecLSN() == 0 {
		return nil
	}
	if dead := by.PS.Err(); dead != nil { // it posts nothing any more, so nothing is in doubt
		return op.Failure(dead, false)
	}
	if err := log.WaitIn(by.PS, f.PageLSN()); err != nil {
		return op.Failure(err, false)
	}
	ps, queued := by.PS, 0
	err := patiently(ps, func() error {
		if err := f.Queue(ps, b, &queued); err != nil {
			return err
		}
		if next != nil && queued < verbs.MaxList {
			ps.Read(next.addr, by.Staging())
			next.done = true
		}
		return postBeside(ps, log, next)
	})
	if err != nil {
		return x.condemn(err)
	}
	f.Clean()
	return nil
}

// patiently does what gives this client up if it fails. So a memory server may take as long for its
// answers as for those to the client itself, however short the limit of the operation is that needs
// them. That limit ends the operation where it waits for anything else.
func patiently(ps *pool.Session, do func() error) error {
	limit := ps.Limit()
	if limit >= pool.DefaultLimit {
		return do()
	}
	ps.Remaining() // so that the operation's clock runs, by its own limit
	ps.SetLimit(pool.DefaultLimit)
	defer ps.SetLimit(limit)
	return do()
}

// postBeside posts what is queued, and the batch of next's record beside it, if there is one.
// Others may wait for that batch, so it is over before this waits for the leaves.
func postBeside(ps *pool.Session, log *redo.Appender, next *prefetch) error {
	if next == nil || next.record == 0 {
		return ps.Post()
	}
	log.Start(next.record)
	ps.Start()
	log.Finish(ps)
	return ps.Await()
}

// evict is flush for a frame that the fetched leaf needs. The frame may be clean; then only its
// entries are kept.
func (s *session) evict(f *frame.Frame) error {
	next := &s.prefetch
	if next.done {
		next = nil
	}
	if err := s.x.flushAnd(&s.b.Session, s.log, f, s.b.Spare, next); err != nil {
		return err
	}
	s.demote(f)
	return nil
}

// demote keeps entries of a leaf that is evicted and written back: those that changed while the
// leaf had its frame. The changes removed them from the kept entries, so a popular key that changes
// often would never be kept otherwise.
func (s *session) demote(f *frame.Frame) {
	if !f.AnyChanged() || s.x.rows.Empty() {
		return
	}
	var v frame.View
	f.Open(&v)
	for i := range v.Count {
		if !f.IsChanged(i) {
			continue
		}
		if w := f.Slot(&v, i); w&0xfff != 0 && !f.Refers(w, s.x.lay) {
			s.leaving = f.Entry(w, s.leaving[:0])
			if key, value, ok := s.x.lay.Pair(s.leaving); ok {
				s.x.rows.Put(key, value, nil)
			}
		}
	}
}

// condemn condemns this client.
func (x *dex) condemn(err error) error {
	x.pool.Condemn(err)
	return op.Failure(err, true)
}

// forget writes f back and drops it, if its leaf lies in given.
func (s *session) forget(f *frame.Frame, given *ranges.Table) error {
	for {
		if f.Addr() == pool.Nil {
			return nil
		}
		if f.TryLock() {
			break
		}
		if err := s.b.Retry(); err != nil {
			return err
		}
	}
	var v frame.View
	if f.Addr() == pool.Nil || !f.Open(&v) || !within(f, &v, given) {
		f.Unlock()
		return nil
	}
	return s.discard(f)
}

// discard writes f back, whose lock the session has, and drops it. After an error f is unlocked,
// and has the changes that it had.
func (s *session) discard(f *frame.Frame) error { return s.replaceLeaf(f, func() error { return nil }) }

// replaceLeaf is discard with a change of the leaf in the memory servers between the write-back and
// the drop. So the change finds all that was made in f, whose lock keeps other sessions from the
// leaf, and the next frame of the leaf finds the change, however it ended.
func (s *session) replaceLeaf(f *frame.Frame, change func() error) error {
	if err := s.back(f); err != nil {
		f.Unlock()
		return err
	}
	defer s.x.cache.Drop(f)
	return patiently(s.b.PS, change)
}

// flushAll writes all leaves back, and with drop it drops them too.
func (x *dex) flushAll(drop bool) error {
	s, err := x.newSession()
	if err != nil {
		return err
	}
	all := ranges.Of(ranges.Span{Start: []byte{}})
	err = x.cache.Each(func(f *frame.Frame) error {
		s.b.Begin() // the limit is of one leaf
		defer s.b.End()
		if drop {
			return s.forget(f, all)
		}
		for f.RecLSN() != 0 {
			if f.TryLock() {
				err := s.back(f)
				f.Unlock()
				return err
			}
			if err := s.b.Retry(); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		s.b.Begin()
		err = s.retire(1)
		s.b.End()
	}
	return errors.Join(err, s.Close())
}
