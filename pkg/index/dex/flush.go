package dex

import (
	"encoding/binary"
	"errors"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/ranges"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/redo"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Leaves are written back when they are evicted, before a structure change, when their range is
// given, and when the log needs the room of their records.
//
// The requests of a flush are one list to one server, so they take effect in order (G1). It is
// posted once all records of the changes are durable:
//
//  1. WRITE of the words between the first and the last entry that was put. Words in between that
//     were there before get the same value. No slot of the memory server points to new entries,
//     but for those that are put over others of their keys (over.go).
//  2. WRITE of each slot that was emptied.
//  3. WRITE of the words between the first and the last slot that got another entry. Those in
//     between get the same value, or were emptied by 2.
//
// A slot is one aligned word (G2), and its entry was complete before. So a reader of the leaf, or
// of what a crash left of it, finds each slot with the old or the new entry, or with a mixture of
// both that does not verify. No key stays there twice: it keeps its slot from insertion to
// deletion, and if it was deleted and inserted again in another slot, 2 precedes 3. What is missing
// after a crash is in the log.

// flush writes f back, whose lock the caller holds. pool.ErrTimeout: the operation's limit is over
// before the log is durable up to the last change of f, which is as dirty as before. After another
// error this client is given up, because the effect of its requests is unknown.
func (x *dex) flush(by *btree.Session, log *redo.Appender, f *frame) error {
	return x.flushAnd(by, log, f, by.Staging(), nil)
}

// flushAnd is flush with a buffer for what is written, and with the READ of a leaf in the same
// round trip.
func (x *dex) flushAnd(by *btree.Session, log *redo.Appender, f *frame, b []byte, next *ahead) error {
	if f.first.Load() == 0 {
		return nil
	}
	if dead := by.PS.Err(); dead != nil { // it posts nothing any more, so nothing is in doubt
		return op.Failure(dead, false)
	}
	if err := log.WaitIn(by.PS, f.lsn.Load()); err != nil {
		return op.Failure(err, false)
	}
	ps, queued := by.PS, 0
	err := patiently(ps, func() error {
		if err := f.queue(ps, b, &queued); err != nil {
			return err
		}
		if next != nil && queued < verbs.MaxList {
			ps.Read(next.addr, by.Staging())
			next.done = true
		}
		return postBeside(ps, log, next)
	})
	if err != nil {
		return x.giveUp(err)
	}
	f.clean()
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
func postBeside(ps *pool.Session, log *redo.Appender, next *ahead) error {
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
func (s *session) evict(f *frame) error {
	next := &s.ahead
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
func (s *session) demote(f *frame) {
	changed := *f.changed()
	if changed == 0 || s.x.cache.rows.empty() {
		return
	}
	var v view
	f.open(&v)
	for i := range v.count {
		if changed>>(i%64)&1 == 0 {
			continue
		}
		if _, off, n := slotted.Slot(f.word(v.dir + i)); n > 0 && !f.refers(f.word(v.dir+i), s.x.lay) {
			s.leaving = f.bytes(off, n, s.leaving[:0])
			if key, value, ok := s.x.lay.Pair(s.leaving); ok {
				s.x.cache.rows.leave(s.x, key, value)
			}
		}
	}
}

// queue queues the requests that write f back, from b, which is as large as its leaf. If they do
// not fit into a list with the others, those are posted first.
func (f *frame) queue(ps *pool.Session, b []byte, queued *int) error {
	var v view
	f.open(&v)
	a := pool.Addr(f.addr.Load())
	write := func(from, to int) error {
		if *queued == verbs.MaxList {
			*queued = 0
			if err := ps.Post(); err != nil {
				return err
			}
		}
		for i := from; i < to; i++ {
			binary.LittleEndian.PutUint64(b[8*i:], f.word(i))
		}
		ps.Write(pool.Sole, a+pool.Addr(8*from), b[8*from:8*to])
		*queued++
		return nil
	}
	if low, high := f.written(); high > 0 {
		if err := write(low, high); err != nil {
			return err
		}
	}
	sets, clears, first, last := f.sets(), f.clears(), -1, -1
	for i := range v.count {
		if clears[i/64]>>(i%64)&1 != 0 {
			if err := write(v.dir+i, v.dir+i+1); err != nil {
				return err
			}
		}
		if sets[i/64]>>(i%64)&1 != 0 {
			if last = i; first < 0 {
				first = i
			}
		}
	}
	if first < 0 {
		return nil
	}
	return write(v.dir+first, v.dir+last+1)
}

// requests returns how many requests write f back. Under the lock.
func (f *frame) requests(v *view) (n int) {
	if _, high := f.written(); high > 0 {
		n++
	}
	sets, clears, any := f.sets(), f.clears(), false
	for i := range v.count {
		n += int(clears[i/64] >> (i % 64) & 1)
		any = any || sets[i/64]>>(i%64)&1 != 0
	}
	if any {
		n++
	}
	return n
}

// giveUp condemns this client.
func (x *dex) giveUp(err error) error {
	x.pool.Condemn(err)
	return op.Failure(err, true)
}

// forget writes f back and drops it, if its leaf lies in given.
func (s *session) forget(f *frame, given *ranges.Table) error {
	for {
		if f.addr.Load() == 0 {
			return nil
		}
		if f.tryLock() {
			break
		}
		if err := s.b.Retry(); err != nil {
			return err
		}
	}
	var v view
	if f.addr.Load() == 0 || !f.open(&v) || !f.within(&v, given) {
		f.unlock()
		return nil
	}
	return s.discard(f)
}

// discard writes f back, whose lock the session has, and drops it. After an error f is unlocked,
// and has the changes that it had.
func (s *session) discard(f *frame) error { return s.replaceLeaf(f, func() error { return nil }) }

// replaceLeaf is discard with a change of the leaf in the memory servers between the write-back and
// the drop. So the change finds all that was made in f, whose lock keeps other sessions from the
// leaf, and the next frame of the leaf finds the change, however it ended.
func (s *session) replaceLeaf(f *frame, change func() error) error {
	if err := s.back(f); err != nil {
		f.unlock()
		return err
	}
	defer s.x.cache.drop(f)
	return patiently(s.b.PS, change)
}

// flushAll writes all leaves back, and with drop it drops them too.
func (x *dex) flushAll(drop bool) error {
	s, err := x.newSession()
	if err != nil {
		return err
	}
	all := ranges.Of(ranges.Span{Start: []byte{}})
	err = x.cache.each(func(f *frame) error {
		s.b.Begin() // the limit is of one leaf
		defer s.b.End()
		if drop {
			return s.forget(f, all)
		}
		for f.first.Load() != 0 {
			if f.tryLock() {
				err := s.back(f)
				f.unlock()
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

// dirty is the queue of frames with changes that are not written back, in the order of their first
// one. It says how far the log can be truncated. A frame that was flushed leaves its queue entry
// behind, which then does not match the frame any more.
type dirty struct {
	x     *dex
	mu    env.Mutex
	queue []entry
	begin int // of the remaining queue
}

type entry struct {
	f     *frame // or the place of a record whose change is not made yet: see beside
	first uint64
}

func (d *dirty) start(x *dex) {
	d.x, d.mu = x, x.env.NewMutex()
}

// append appends a record of a change of f, whose lock the caller holds. While the first record of
// a clean frame is appended, no other session appends such a one, so queue entries are in the order
// of their positions, and none can be truncated before it is queued. Where it would have to wait
// for the log it returns redo.ErrBusy: nobody waits with the frame's lock, nor with dirty.mu, which
// truncation needs.
func (d *dirty) append(a *redo.Appender, f *frame, record []byte) (uint64, error) {
	if f.first.Load() != 0 {
		return a.TryAppend(record)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	position, err := a.TryAppend(record)
	if err == nil {
		f.first.Store(position)
		d.trim()
		d.queue = append(d.queue, entry{f, position})
	}
	return position, err
}

// trim drops outdated entries at the front.
func (d *dirty) trim() {
	for d.begin < len(d.queue) && d.queue[d.begin].f.first.Load() != d.queue[d.begin].first {
		d.begin++
	}
	if d.begin > len(d.queue)/2 {
		n := copy(d.queue, d.queue[d.begin:])
		d.queue, d.begin = d.queue[:n], 0
	}
}

// all returns the dirty frames, each once. Others flush and change frames meanwhile.
func (d *dirty) all() []*frame {
	d.mu.Lock()
	defer d.mu.Unlock()
	var frames []*frame
	for _, e := range d.queue[d.begin:] {
		if e.f.first.Load() == e.first && e.f.words != nil {
			frames = append(frames, e.f)
		}
	}
	return frames
}

// some appends the frames to fs that prevent most of the log from being truncated, the oldest
// first, as many as fs has room for.
func (d *dirty) some(fs []*frame) []*frame {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.trim()
	for i := d.begin; i < len(d.queue) && len(fs) < cap(fs); i++ {
		if e := &d.queue[i]; e.f.first.Load() == e.first && e.f.words != nil {
			fs = append(fs, e.f)
		}
	}
	return fs
}

// truncate truncates the log as far as possible.
func (d *dirty) truncate() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.trim()
	upTo := d.x.log.Durable()
	if d.begin < len(d.queue) {
		upTo = min(upTo, d.queue[d.begin].first-1)
	}
	d.x.log.Truncate(upTo)
}
