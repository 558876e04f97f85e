package dex

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blink"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/redo"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// session implements index.Session.
type session struct {
	x       *dex
	b       *blink.Session
	log     *redo.Appender
	back    func(*frame) error   // flush, made once
	yield   func(*frame) error   // evict, made once
	stop    func(blink.Way) bool // deserves, made once
	costs   map[uint16]*costs    // by memory server
	sought  sought
	ahead   ahead
	limit   time.Duration
	value   []byte   // on its way out of a frame
	changed []uint64 // of a frame that goes: the slots that were changed
	leaving []byte   // an entry of it
	entry   []byte   // on its way into one
	record  []byte
	ref     [blink.ReferenceBytes]byte // of the block of the write under way
	block   blink.Reference            // the same one, as long as nothing else has it
	closed  bool

	garbage []blink.Reference // on its way back
}

// Session implements index.Index.
func (x *dex) Session() (index.Session, error) {
	s, err := x.newSession()
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, errors.Join(fmt.Errorf("open a session: %w", index.ErrClosed), s.Close())
	}
	x.open++
	if !x.with.partitioning {
		return shared{&counted{session: s}}, nil
	}
	return &counted{session: s}, nil
}

// counted is a session that keeps its index from being closed.
type counted struct{ *session }

// Close implements index.Session.
func (c *counted) Close() error {
	if c.closed {
		return nil
	}
	c.x.mu.Lock()
	c.x.open--
	c.x.mu.Unlock()
	return c.session.Close()
}

func (x *dex) newSession() (*session, error) {
	b, err := x.tree.NewSession()
	if err != nil {
		return nil, err
	}
	s := &session{x: x, b: b, log: x.log.Appender(), limit: index.DefaultLimit,
		entry: make([]byte, blink.MaxEntryBytes), record: make([]byte, 0, recordFixed+blink.MaxEntryBytes)}
	s.stop, s.costs = s.deserves, map[uint16]*costs{}
	for _, id := range x.pool.Servers() {
		s.costs[id] = new(costs)
	}
	s.yield = s.evict
	s.back = func(f *frame) error { return x.flush(s.b, s.log, s.limit, f) }
	return s, nil
}

// SetLimit implements index.Session.
func (s *session) SetLimit(limit time.Duration) {
	s.limit = limit
	s.b.SetLimit(limit)
}

// Counters implements index.Session. What writes the log is not in it.
func (s *session) Counters() verbs.Counters { return s.b.Counters() }

// Close implements index.Session.
func (s *session) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	return s.b.Close()
}

// durable waits until all records up to position are.
func (s *session) durable(position uint64) error {
	if position == 0 {
		return nil
	}
	return s.log.Wait(position, s.limit)
}

// state of what was tried with a frame.
type state uint8

const (
	done     state = iota
	busy           // somebody has it, or it changed meanwhile: try again
	gone           // it is another leaf's by now
	astray         // the key lies above its leaf
	logFull        // of records
	absentee       // the key is not there
	inBlock        // done, but it is a reference
)

// Lookup implements index.Session. When the leaf is in the cache, and all records are durable, nothing is posted.
func (s *session) Lookup(key, dst []byte) ([]byte, error) {
	if value, found, sure := s.glance(key, dst); sure {
		if !found {
			return dst, index.ErrNotFound
		}
		return value, nil
	}
	s.b.Begin()
	defer s.b.End()
	value, err := s.lookup(key, dst)
	if err != nil && err != index.ErrNotFound {
		err = fmt.Errorf("look up: %w", err)
	}
	return value, err
}

func (s *session) lookup(key, dst []byte) ([]byte, error) {
	if err := s.x.lay.CheckKey(key); err != nil {
		return dst, err
	}
	if s.x.ranges.Load().at(key) < 0 {
		return dst, index.ErrNotOwner
	}
	if s.x.with.direct() {
		return s.b.Find(key, dst)
	}
	var p blink.Path
	var err error
	if s.x.with.offloading {
		q := &s.sought
		if err = s.seek(q, key, false); err == nil && q.holds(s.x) {
			if q.found.Entry == nil {
				return dst, index.ErrNotFound
			}
			if value, ok, err := s.told(key, q.found.Entry, dst, q.found.Leaf, q.since); ok || err != nil {
				return value, err
			}
		}
		p = q.path
	} else {
		p, err = s.b.Descend(key)
	}
	if err != nil {
		return dst, err
	}
	fp := s.x.lay.Fingerprint(key)
	for hops := 0; ; {
		f := s.x.cache.locate(&p)
		if f == nil {
			var l blink.Leaf
			kept, here, err := s.fetch(&p, &l, key, &hops, false)
			if err != nil {
				return dst, err
			}
			if here && !kept {
				e, there := l.Find(key)
				if !there {
					return dst, index.ErrNotFound
				}
				if value, ok, err := s.told(key, e, dst, p.Addr(), s.ahead.since); ok || err != nil {
					return value, err
				}
				if err := s.b.Again(); err != nil {
					return dst, err
				}
			}
			continue
		}
		value, lsn, st := s.look(f, p.Addr(), key, dst, fp)
		switch st {
		case done, absentee, inBlock:
			f.hit()
			if err := s.durable(lsn); err != nil {
				return dst, blink.Failure(err, false)
			}
			switch st {
			case absentee:
				return dst, index.ErrNotFound
			case done:
				return value, nil
			}
			if value, ok, err := s.b.Value(blink.Refer(value[len(dst):]), dst); ok || err != nil {
				return value, err
			}
			if err := s.b.Again(); err != nil {
				return dst, err
			}
		default:
			if err := s.resolve(st, &p, key, &hops); err != nil {
				return dst, err
			}
		}
	}
}

// glance is a lookup of which all is in this client's memory, and durable. It is sure then: it found the key, or it is not there.
func (s *session) glance(key, dst []byte) (value []byte, found, sure bool) {
	x := s.x
	if x.with.direct() || x.lay.CheckKey(key) != nil || x.ranges.Load().at(key) < 0 {
		return dst, false, false
	}
	if a, hint := s.b.Glance(key); hint != 0 {
		f := x.cache.hinted(hint)
		value, lsn, st := s.look(f, a, key, dst, x.lay.Fingerprint(key))
		if (st == done || st == absentee) && lsn <= x.log.Durable() {
			f.hit()
			s.b.Glanced()
			return value, st == done, true
		}
	}
	if value, found = x.cache.entries.find(x, key, dst); found {
		s.b.Glanced()
	}
	return value, found, found
}

// look looks for key in the leaf at a, in f, without its lock, and appends its value to dst, or the reference to it. What it shows is durable once the log is up to lsn.
func (s *session) look(f *frame, a pool.Addr, key, dst []byte, fp byte) (value []byte, lsn uint64, st state) {
	version := f.version.Load()
	if version&1 != 0 {
		return dst, 0, busy
	}
	if f.addr.Load() != uint64(a) {
		return dst, 0, gone
	}
	var v view
	s.x.pause()
	value, st = dst, absentee
	numbers := s.x.lay.Uint64Keys()
	if !f.open(&v) || f.below(&v, key, numbers) {
		st = busy
	} else if f.above(&v, key, numbers) {
		st = astray
	} else if i, w := f.find(&v, key, fp, numbers); i >= 0 {
		s.x.pause()
		value = f.value(w, s.x.lay, key, dst)
		if st = done; f.refers(w, s.x.lay) {
			st = inBlock
		}
	}
	s.x.pause()
	lsn = f.lsn.Load()
	if f.version.Load() != version {
		return dst, 0, busy
	}
	return value, lsn, st
}

// pause gives others a chance between two steps of an optimistic reader, in builds with invariants.
func (x *dex) pause() {
	if invariants.Enabled && x.env.Uint64()%16 == 0 {
		x.env.Yield()
	}
}

// resolve goes on after a frame could not be used: p leads elsewhere then, or the same may be tried again.
func (s *session) resolve(st state, p *blink.Path, key []byte, hops *int) error {
	switch st {
	case astray:
		var l blink.Leaf
		kept, err := s.x.Copy(s.b, p.Addr(), s.b.Staging())
		if err != nil || !kept {
			return err
		}
		_, err = s.b.Judge(p, &l, key, s.b.Staging(), hops)
		return err
	case logFull:
		s.x.writer.wake.Set()
		return s.b.Again()
	case gone:
		return nil
	}
	return s.b.Again()
}

// fetch reads the leaf where p leads, if it is not in the cache. here: l is the leaf that holds key, verified; unless it is kept now, it is in the session's staging buffer. Else p may lead elsewhere;
// go on. must: it shall be kept.
func (s *session) fetch(p *blink.Path, l *blink.Leaf, key []byte, hops *int, must bool) (kept, here bool, err error) {
	if err := s.x.balance.shift(s); err != nil {
		return false, false, err
	}
	a, b := p.Addr(), s.b.Staging()
	s.ahead = ahead{addr: a, since: s.x.cache.departed.clock.Load()}
	f, fresh, err := s.x.cache.reserve(a, must, s.yield)
	if err != nil || f != nil && !fresh {
		return false, false, err
	}
	if f == nil && must {
		return false, false, s.b.Again()
	}
	s.x.fetched.Add(1)
	if !s.ahead.done || f != nil && s.x.cache.departed.after(a, s.ahead.since) {
		ps := s.b.Pool()
		ps.Read(a, b)
		began := s.clock(a)
		if err := ps.Post(); err != nil {
			if f != nil {
				s.x.cache.drop(f)
			}
			return false, false, blink.Failure(err, false)
		}
		s.measured(a, began)
	}
	if f != nil {
		if l.Is(s.x.tree, a, b, key) && s.x.ranges.Load().whole(l.Low(), l.High(), l.Rightmost()) {
			f.fill(b)
			f.unlock()
			return true, true, nil
		}
		s.x.cache.drop(f)
	}
	here, err = s.b.Judge(p, l, key, b, hops)
	if here && must {
		return false, false, fmt.Errorf("leaf %v of %x to %x goes beyond the ranges that this client took: %w", a, l.Low(), l.High(), index.ErrFormat)
	}
	return false, here, err
}

// mode is what a write may find.
type mode uint8

const (
	insert mode = iota
	update
	upsert
	remove
)

var names = [...]string{"insert", "update", "upsert", "delete"}

// Insert implements index.Session.
func (s *session) Insert(key, value []byte) error { return s.write(key, value, insert) }

// Update implements index.Session.
func (s *session) Update(key, value []byte) error { return s.write(key, value, update) }

// Upsert implements index.Session.
func (s *session) Upsert(key, value []byte) error { return s.write(key, value, upsert) }

// Delete implements index.Session.
func (s *session) Delete(key []byte) error { return s.write(key, nil, remove) }

// write changes the leaf in the cache, with a record in the log. When it is there and has room, what is posted is the log's batch.
func (s *session) write(key, value []byte, m mode) error {
	s.b.Begin()
	defer s.b.End()
	err := s.change(key, value, m)
	for err != nil {
		if s.unmade(); !s.again(err, value, m) {
			break
		}
		err = s.change(key, value, m)
	}
	if err == nil {
		err = s.retired()
	}
	if err != nil && err != index.ErrNotFound && err != index.ErrExists {
		err = fmt.Errorf("%s: %w", names[m], err)
	}
	return err
}

func (s *session) change(key, value []byte, m mode) error {
	if err := s.x.lay.CheckPair(key, value); err != nil {
		return err
	}
	r := s.x.ranges.Load()
	in := r.at(key)
	if in < 0 {
		return index.ErrNotOwner
	}
	var p blink.Path
	var err error
	if s.x.with.offloading {
		q := &s.sought
		if err = s.seek(q, key, true); err == nil && q.near {
			err = s.admit(q, key)
		}
		p = q.path
	} else {
		p, err = s.b.Descend(key)
	}
	if err != nil {
		return err
	}
	fp := s.x.lay.Fingerprint(key)
	if done, err := s.prepare(&p, key, value, fp, r.spans[in].epoch, m); done || err != nil {
		return err
	}
	for hops := 0; ; {
		f := s.x.cache.locate(&p)
		if f == nil {
			var l blink.Leaf
			if _, _, err := s.fetch(&p, &l, key, &hops, true); err != nil {
				return err
			}
			continue
		}
		o := s.apply(f, p.Addr(), key, fp, m)
		switch {
		case o.err != nil:
			return o.err
		case o.st == done:
			f.hit()
			return s.answer(&o, key, p.Addr())
		}
		if err := s.resolve(o.st, &p, key, &hops); err != nil {
			return err
		}
	}
}

// outcome of a write.
type outcome struct {
	st        state
	lsn       uint64
	answer    error // ErrExists, ErrNotFound
	err       error
	dropped   bool // the frame
	underfull bool // a delete may have left the leaf so
	count     int
	bytes     int
}

// answer waits until what was done, or seen, is durable.
func (s *session) answer(o *outcome, key []byte, a pool.Addr) error {
	if err := s.durable(o.lsn); err != nil {
		return blink.Failure(err, o.answer == nil)
	}
	if o.underfull {
		if err := s.b.Tidy(key, a, o.count, o.bytes); err != nil {
			return err
		}
	}
	return o.answer
}

// apply changes the leaf at a in f, with its lock.
func (s *session) apply(f *frame, a pool.Addr, key []byte, fp byte, m mode) (o outcome) {
	if !f.tryLock() {
		return outcome{st: busy}
	}
	defer func() {
		switch {
		case o.dropped:
		case s.x.with.caching || f.addr.Load() != uint64(a):
			f.unlock()
		default:
			s.x.cache.drop(f)
		}
	}()
	if f.addr.Load() != uint64(a) {
		return outcome{st: gone}
	}
	var v view
	if !f.open(&v) {
		return outcome{err: fmt.Errorf("what is kept of leaf %v is no leaf: %w", a, index.ErrFormat)}
	}
	if f.above(&v, key, s.x.lay.Uint64Keys()) {
		return outcome{st: astray}
	}
	if !s.x.cache.entries.drop(s.x, key) {
		return outcome{st: busy}
	}
	i, word := f.find(&v, key, fp, s.x.lay.Uint64Keys())
	switch {
	case i >= 0 && m == insert:
		return outcome{lsn: f.lsn.Load(), answer: index.ErrExists}
	case i < 0 && (m == update || m == remove):
		return outcome{lsn: f.lsn.Load(), answer: index.ErrNotFound}
	}
	at, was := 0, byte(recordDelete)
	if i >= 0 {
		if was = recordPut; f.refers(word, s.x.lay) {
			was, s.value = recordRefer, f.value(word, s.x.lay, key, s.value[:0])
		}
	}
	if m != remove {
		for try := 0; ; try++ {
			slot := i
			if slot < 0 {
				slot = f.vacant(&v)
			}
			if i >= 0 {
				at = f.own(i, word, len(s.entry))
			}
			if at == 0 {
				at = f.place(&v, len(s.entry))
			}
			if slot >= 0 && at > 0 {
				i = slot
				break
			}
			if try > 0 || f.first.Load() == 0 {
				switch was {
				case recordDelete:
					s.value = s.value[:0]
				case recordPut:
					s.value = f.value(word, s.x.lay, key, s.value[:0])
				}
				return s.restructure(f, key, was)
			}
			if err := s.back(f); err != nil {
				return outcome{err: err}
			}
		}
	}
	lsn, err := s.append(f)
	if errors.Is(err, redo.ErrFull) {
		return outcome{st: logFull}
	}
	if err != nil {
		return outcome{err: s.x.giveUp(err)}
	}
	s.block = blink.Reference{} // the log has it
	if m == remove {
		f.remove(s.x.lay, &v, i)
		o.underfull = true
		o.count, o.bytes = f.content(&v)
	} else {
		f.put(s.x.lay, &v, i, at, fp, s.entry)
	}
	f.lsn.Store(lsn)
	o.lsn = lsn
	if !s.x.with.caching {
		o.err = s.back(f)
	}
	if was == recordRefer && o.err == nil {
		s.x.garbage.add(blink.Refer(s.value), lsn)
	}
	return o
}

// append appends the record of a change of f. Without caching there is none: the change is written back before it is answered.
func (s *session) append(f *frame) (uint64, error) {
	if s.x.with.caching {
		return s.x.dirty.append(s.log, f, s.record)
	}
	f.first.Store(1)
	return 0, nil
}

// restructure makes the change in the memory servers, where the leaf is compacted or divided for it. Nobody of this client uses the leaf meanwhile, as f, whose lock the caller has, stands
// for it; but a new leaf beside it can be found, and read, as soon as it is there. So the record is durable before that. If the change then cannot be made, another record says what was
// there before: was is its kind, and s.value its value or reference.
func (s *session) restructure(f *frame, key []byte, was byte) outcome {
	defer s.x.cache.drop(f)
	err := s.back(f)
	if err == nil {
		err = s.note(s.record)
	}
	if err == nil {
		block := s.block
		s.block = blink.Reference{} // the log has it
		if err = s.b.PutMade(key, s.entry); err == nil {
			return outcome{dropped: true}
		}
		var r record
		_ = r.decode(s.record) // it was encoded just now
		undo := appendRecord(nil, was, r.epoch, key, s.value)
		if errors.Is(err, index.ErrUnknown) { // whoever replays the log makes it
			err = s.x.giveUp(err)
		} else if e := s.note(undo); e != nil {
			err = s.x.giveUp(fmt.Errorf("%v, and that cannot be noted: %w", err, e)) // nothing but unknown: not what the first error was
		} else {
			s.block = block // no replay looks for it any more
		}
	}
	return outcome{err: err, dropped: true}
}

// note appends a record and waits until it is durable. After an error there is no record, or this client is given up.
func (s *session) note(r []byte) error {
	if !s.x.with.caching {
		return nil // nothing is replayed: see append
	}
	for {
		lsn, err := s.log.Append(r)
		if err == nil {
			if err = s.durable(lsn); err != nil {
				err = s.x.giveUp(err)
			}
			return err
		}
		if !errors.Is(err, redo.ErrFull) {
			return s.x.giveUp(err)
		}
		s.x.writer.wake.Set()
		if err := s.b.Again(); err != nil {
			return err // nothing was appended
		}
	}
}

// Scan implements index.Session. It ends where what this client took without a gap ends.
func (s *session) Scan(start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	r := s.x.ranges.Load()
	from := start
	if len(start) == 0 && !reverse {
		from = s.x.low
	}
	if reverse && len(start) > 0 && bytes.Equal(start, s.x.low) {
		return nil // nothing is below the lowest key
	}
	if reverse {
		i := r.below(start)
		if i < 0 {
			return fmt.Errorf("scan: %w", index.ErrNotOwner)
		}
		low, _ := r.around(r.spans[i].start)
		return s.b.ScanUpTo(low, start, limit, true, visit)
	}
	if r.at(from) < 0 {
		return fmt.Errorf("scan: %w", index.ErrNotOwner)
	}
	_, high := r.around(from)
	return s.b.ScanUpTo(high, start, limit, false, visit)
}
