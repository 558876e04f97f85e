package dex

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/record"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/index/internal/slottedtree"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/redo"
)

// mode is what a write does if the key is there, and if it is not.
type mode uint8

const (
	insert mode = iota
	update
	upsert
	remove
	modify   // whatever index.Change says
	putAsked // upsert of what index.Change returned, unless the pair has changed since
)

var names = [...]string{"insert", "update", "upsert", "delete", "modify"}

// Insert implements index.Session.
func (s *session) Insert(key, value []byte) error { return s.write(key, value, insert) }

// Update implements index.Session.
func (s *session) Update(key, value []byte) error { return s.write(key, value, update) }

// Upsert implements index.Session.
func (s *session) Upsert(key, value []byte) error { return s.write(key, value, upsert) }

// Delete implements index.Session.
func (s *session) Delete(key []byte) error { return s.write(key, nil, remove) }

// write changes the leaf in the cache, with a record in the log. If the leaf is there and has room,
// only the log's batch is posted.
func (s *session) write(key, value []byte, m mode) error {
	s.b.Begin()
	defer s.b.End()
	err := s.change(key, value, m)
	for err != nil {
		if !s.again(err, m) {
			s.freeBlock()
			break
		}
		err = s.change(key, value, m)
	}
	if err == nil {
		err = s.afterwards()
	}
	err = s.awaitCancelled(err)
	if err != nil && err != index.ErrNotFound && err != index.ErrExists && err != errKept {
		err = fmt.Errorf("%s: %w", names[m], err)
	}
	return err
}

func (s *session) change(key, value []byte, m mode) error {
	if err := s.x.lay.CheckPair(key, value); err != nil {
		return err
	}
	r := s.x.ranges.Load()
	in := r.At(key)
	if in < 0 {
		return index.ErrNotOwner
	}
	if made, err := s.changePrepared(key, value, r.Span(in).Epoch, m); made || err != nil {
		return err
	}
	p, err := s.b.Descend(key)
	if err != nil {
		return err
	}
	fp := s.x.lay.Fingerprint(key)
	if done, err := s.prepare(&p, key, value, fp, r.Span(in).Epoch, m); done || err != nil {
		return err
	}
	tried := false
	for hops := 0; ; {
		f := s.x.cache.Locate(&p)
		if f == nil {
			if !tried && s.mayAppendBeside(&p, m) {
				tried = true
				o, made, err := s.changeBeside(&p, key, fp, r.Span(in).Epoch, m, &hops)
				if err != nil {
					return err
				}
				if made {
					return s.answer(&o, key, p.Addr())
				}
				continue
			}
			var l slotted.Leaf
			if _, _, err := s.fetch(&p, &l, key, &hops, true); err != nil {
				return err
			}
			continue
		}
		o := s.apply(f, p.Addr(), key, fp, r.Span(in).Epoch, m)
		switch {
		case o.err != nil:
			return o.err
		case o.st == blockWanted:
			value, m = s.mod.value, putAsked
			if err := s.prepareBlock(p.Addr(), key, value, r.Span(in).Epoch); err != nil {
				return err
			}
			continue
		case o.st == pairChanged:
			s.freeBlock()
			value, m = nil, modify
			if err := s.b.Retry(); err != nil {
				return err
			}
			continue
		case o.st == frame.Done:
			f.Hit()
			if o.popular && m != remove && s.x.lay.InBlock(len(value)) {
				s.tag.Set(s.ref[:], r.Span(in).Epoch)
				s.blockSource = blockSource{f: f, leaf: p.Addr(), key: key, fp: fp}
				s.x.values.Put(&s.tag, value, s.refers)
			}
			return s.answer(&o, key, p.Addr())
		}
		if err := s.resolve(o.st, &p, key, &hops); err != nil {
			return err
		}
	}
}

// outcome is the result of a write.
type outcome struct {
	st        frame.State
	lsn       uint64
	answer    error // ErrExists, ErrNotFound
	err       error
	released  bool // the frame, where room was made
	popular   bool // the replaced long value was in the cache
	underfull bool // a delete may have left the leaf so
	count     int
	bytes     int
}

// apply changes the leaf at a in f, whose lock it acquires. The range was taken in an epoch.
func (s *session) apply(f *frame.Frame, a pool.Addr, key []byte, fp byte, epoch uint64, m mode) (o outcome) {
	if !f.TryLock() {
		return outcome{st: frame.Busy}
	}
	defer func() {
		if !o.released {
			f.Unlock()
		}
	}()
	if f.Addr() != a {
		return outcome{st: frame.Evicted}
	}
	return s.applyIn(f, a, key, fp, epoch, m)
}

// applyIn is apply in the frame of the leaf at a, whose lock the caller holds.
func (s *session) applyIn(f *frame.Frame, a pool.Addr, key []byte, fp byte, epoch uint64, m mode) (o outcome) {
	var v frame.View
	if !f.Open(&v) {
		return outcome{err: fmt.Errorf("what is kept of leaf %v is no leaf: %w", a, index.ErrFormat)}
	}
	if f.Above(&v, key, s.x.lay.Uint64) {
		return outcome{st: frame.AboveRange}
	}
	if f.Below(&v, key, s.x.lay.Uint64) {
		return outcome{st: frame.BelowRange}
	}
	i, word := f.Find(&v, key, fp, s.x.lay.Uint64)
	switch m {
	case modify:
		var st frame.State
		if m, st, o.err = s.decide(f, i, word, key, epoch); o.err != nil || st != frame.Done {
			return outcome{st: st, err: o.err}
		}
	case putAsked:
		if m = upsert; !s.asTold(f, i, word, key) {
			return outcome{st: pairChanged}
		}
	}
	if invariants.Enabled {
		s.x.rows.CheckNone(key)
	}
	switch {
	case m == modify:
		return outcome{lsn: f.PageLSN(), answer: errKept}
	case i >= 0 && m == insert:
		return outcome{lsn: f.PageLSN(), answer: index.ErrExists}
	case i < 0 && (m == update || m == remove):
		return outcome{lsn: f.PageLSN(), answer: index.ErrNotFound}
	}
	// The steps before may have taken longer than the limit of the operation. The change would come
	// too late then: after others of the key, whose sessions did not wait for this frame.
	if late := s.b.PS.Late(); late != nil {
		return outcome{err: op.Failure(late, false)}
	}
	at, was := 0, byte(record.Delete)
	if i >= 0 {
		if was = record.Put; f.Refers(word, s.x.lay) {
			was, s.value = record.Refer, f.Value(word, s.x.lay, key, s.value[:0])
			s.tag.Set(s.value, epoch)
			had, ok := s.x.values.Drop(&s.tag)
			if o.popular = had; !ok {
				return outcome{st: frame.Busy}
			}
		}
	}
	if m != remove {
		for try := 0; ; try++ {
			var slot int
			if slot, at = f.FindRoom(&v, i, word, len(s.entry)); at > 0 {
				i = slot
				break
			}
			if try > 0 || f.RecLSN() == 0 {
				return s.restructure(f, a, key)
			}
			if err := s.back(f); err != nil {
				return outcome{err: err}
			}
		}
	}
	lsn, err := s.append(f)
	switch {
	case errors.Is(err, redo.ErrFull):
		return outcome{st: logFull}
	case err == redo.ErrBusy:
		return outcome{st: logBusy}
	case err != nil:
		return outcome{err: s.x.condemn(err)}
	}
	s.block = blocks.Reference{} // the log has it
	if m == remove {
		f.Remove(s.x.lay, &v, i)
		o.underfull = true
		o.count, o.bytes = f.Content(&v)
	} else {
		f.Put(s.x.lay, &v, i, at, fp, s.entry)
	}
	f.SetPageLSN(lsn)
	o.lsn = lsn
	if was == record.Refer {
		s.x.garbage.Add(blocks.Decode(s.value), lsn)
	}
	return o
}

// append appends the record of a change of f.
func (s *session) append(f *frame.Frame) (uint64, error) {
	if s.pending.LSN() != 0 {
		return s.x.wal.Commit(&s.pending, f), nil
	}
	return s.x.wal.Append(s.log, f, s.record)
}

// restructure makes room for the session's entry, of key, in the leaf at a in f, which has none
// even when it is written back, or beside it (grow.go). The caller holds the lock of f, which is
// released. After an error that is not ErrUnknown there may be room or not, and nothing else has
// changed.
func (s *session) restructure(f *frame.Frame, a pool.Addr, key []byte) outcome {
	g := &s.together().ready.growth
	g.coming = append(g.coming[:0], slotted.Coming{Key: key, Bytes: len(s.entry)})
	s.x.presplits.met()
	known := len(g.empty)
	err := s.growLeaf(f, a)
	if err == nil {
		g.empty = g.empty[:known] // the change comes at once
	}
	return outcome{st: roomMade, err: err, released: true}
}

// answer waits until what was done, or read, is durable.
func (s *session) answer(o *outcome, key []byte, a pool.Addr) error {
	if err := s.seen(o.lsn); err != nil {
		return op.Failure(err, o.answer == nil)
	}
	if o.underfull {
		if err := patiently(s.b.PS, func() error { return s.b.Tidy(key, a, slottedtree.Load(o.count, o.bytes)) }); err != nil {
			return err
		}
	}
	return o.answer
}
