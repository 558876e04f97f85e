package dex

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/lfu"
	"github.com/dmindex/dmindex/pkg/index/internal/seqlock"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/redo"
)

// A key whose entry is kept (rowcache.go) exists, and its leaf has no frame. So an update or upsert
// of it needs not READ the leaf: it appends its record, and changes the entry. The entry is then
// unwritten: the leaf lacks its value. An entry that holds says at all times that no session uses
// the leaf in a frame:
//
//   - An entry is kept only while the leaf has no frame (keep), or has one that is locked and about
//     to be given up (leave).
//   - Who fills a frame takes all entries of the leaf out, before the frame's lock is released
//     (session.fill). Unwritten ones it makes the frame's (absorb). The key of an entry that holds
//     is in the leaf, so these are found by the keys of the leaf, wherever the leaf is by now.
//
// So the changes of a key are in one order, and their records in the same: those of the entry under
// the bucket's lock, then those in the frame, then again those of an entry that was put in when the
// frame was given up.
//
// # The change of an entry
//
//	1  claims the key (beside.go)
//	2  locks the bucket, and finds that the entry holds. An insertion is refused here
//	3  finds that the new value takes no more words than the one before
//	4  appends the record, plain. The position counts as that of the entry, in the place of the
//	   one before; both under dirty.mu, so that truncation sees one of them. If that had to wait
//	   for the log, it unlocks, waits without any lock, and begins at 1
//	5  changes the entry, and unlocks
//	6  waits until the record is durable, and answers
//
// 1: a session that has appended its record beside the READ of the leaf (beside.go) makes its
// change when the frame is filled. A change of the entry in between would have the later record and
// be made first. 3: so the value fits over the one that the leaf has (over.go), and making it the
// frame's needs no memory of the pool, and no write-back. Deletions, modifications and long values
// fetch the leaf, as ever.
//
// # Who reads
//
// A lookup looks for the entry first (lookEntry), and if it finds none it READs the leaf, or asks a
// memory server, as ever. Suppose it found none at a moment t, and then no frame. What was changed
// before t was in a frame at t, or before; that is gone, so it is written back. What was changed
// after t is concurrent. A lookup that finds an unwritten entry waits for its record. A scan READs
// a leaf before it knows which keys are there. So it looks for their entries afterwards, and then
// sees that the leaf had no frame since before the READ; else it READs again (Admit).
//
// # Truncation
//
// Of an entry only the last record is needed: it says what the key has. So the position of an entry
// is that of its last record, and a key that changes often never keeps the log from being
// truncated. An earlier record may go when the later one is durable (dirty.truncate). Positions are
// counted by parts of the ring, which is as exact as truncation is.
//
// When the log has no room, unwritten entries with old records are made their leaves'
// (applyEntries): many leaves are fetched in a round trip, and written back as any other. Give
// does that with the range's entries while the range is still this client's, and so do Check,
// bulk loads and Close.

// mostUnwritten is how many unwritten entries there may be for so many bytes of the log: each keeps
// one record. unwrittenShare is the part of a bucket that they may have.
const (
	mostUnwritten  = 128
	unwrittenShare = 2
)

// lookEntry looks for the entry of key for as long as it is not known whether there is one, and
// waits until what it found holds.
func (s *session) lookEntry(key, dst []byte) (value []byte, found bool, err error) {
	if !s.x.with.entryChanges {
		return dst, false, nil
	}
	for try := 0; ; try++ {
		value, lsn, st := s.x.cache.rows.look(s.x, key, dst)
		switch st {
		case done:
			return value, true, s.seen(lsn)
		case absentee:
			return dst, false, nil
		}
		if try < bucketTries {
			s.x.env.Yield()
			continue
		}
		if err := s.b.Retry(); err != nil {
			return dst, false, err
		}
	}
}

// hasEntry reports whether an entry of key holds, so that a change of it needs no leaf. It may be
// wrong by the time that it returns.
func (e *rowCache) hasEntry(key []byte) bool {
	if !e.some.Load() {
		return false
	}
	p := e.place(key)
	if e.lacks(p) {
		return false
	}
	_, _, head := seek(e.at(p.bucket), p.head, key)
	return head != 0 && head&stale == 0
}

// changeInPlace makes a change of the entry of key, if one is kept, and answers it. made is false
// if the leaf is needed.
func (s *session) changeInPlace(key, value []byte, epoch uint64, m mode) (made bool, err error) {
	for {
		o, made, err := s.changeEntry(key, value, epoch, m)
		switch {
		case err != nil || !made:
			return false, err
		case o.st == done:
			return true, s.answer(&o, key, pool.Nil)
		}
		if err := s.resolve(o.st, nil, key, nil); err != nil { // the log has no room, or is busy
			return false, err
		}
	}
}

// changeEntry makes a change of the entry of key, in a range that was taken in an epoch. made: o is
// its outcome. Otherwise nothing has happened, and the leaf is needed.
func (s *session) changeEntry(key, value []byte, epoch uint64, m mode) (o outcome, made bool, err error) {
	x := s.x
	e := &x.cache.rows
	if !x.with.entryChanges || m > upsert || x.lay.InBlock(len(value)) || !e.hasEntry(key) {
		return o, false, nil
	}
	claim := x.claims.try(key)
	if claim == nil {
		return o, false, nil
	}
	defer claim.Store(false)
	x.pause()
	p, b, ok := e.acquire(key)
	if !ok {
		return o, false, nil
	}
	defer unlock(b)
	number, at, head := seek(b, p.head, key)
	if head == 0 || head&stale != 0 {
		return o, false, nil
	}
	before := uint64(0)
	if head&unwritten != 0 {
		before = b[at+extent(head)-1]
	}
	if m == insert {
		return outcome{lsn: before, answer: index.ErrExists}, true, nil
	}
	if !x.fitsEntry(b, head, key, value) {
		return o, false, nil
	}
	s.prepareInline(key, value, epoch)
	x.pause()
	position, err := x.dirty.appendEntry(s.log, s.record, before)
	switch err {
	case nil:
	case redo.ErrFull:
		return outcome{st: logFull}, true, nil
	case redo.ErrBusy:
		return outcome{st: logBusy}, true, nil
	default:
		return o, false, x.giveUp(err)
	}
	x.pause()
	e.rewrite(p.bucket, number, at, p.head|unwritten, key, value, min(lfu.Most, count(b, number)+1), position)
	return outcome{lsn: position}, true, nil
}

// fitsEntry reports whether an entry may become unwritten with a value: there is room for it in its
// bucket, and in its leaf, and not too many are.
func (x *dex) fitsEntry(b []uint64, head uint64, key, value []byte) bool {
	has, gets := x.lay.EntryBytes(len(key), valueLen(head)), x.lay.EntryBytes(len(key), len(value))
	if wordsOf(gets) > wordsOf(has) {
		return false
	}
	if head&unwritten != 0 {
		return true
	}
	used := 2 + wordsOf(len(key)) + wordsOf(len(value))
	for at := bucketBegin; at < len(b) && b[at] != 0; at += extent(b[at]) {
		if b[at]&unwritten != 0 {
			used += extent(b[at])
		}
	}
	return used <= (len(b)-bucketBegin)/unwrittenShare && x.dirty.unwritten.Load() < x.dirty.mostUnwritten
}

// rewrite makes value that of entry number of bucket i, which begins at word at. Under the lock.
// head has its state; position is 0 unless it is unwritten. It always has room: it is as long as
// before, or it is one of few unwritten ones.
func (e *rowCache) rewrite(i uint64, number, at int, head uint64, key, value []byte, uses uint8, position uint64) {
	size := 1 + wordsOf(len(key)) + wordsOf(len(value))
	if position != 0 {
		size++
	}
	b := e.at(i)
	takeOut(b, number, at)
	if end := e.insert(i, head, key, value, size, uses); position != 0 {
		seqlock.Store(&b[end], position)
	}
}

// filling is what a session needs to fill a frame.
type filling struct {
	absorbed []byte // an entry of the leaf, or its key
	newer    []byte // the value of the key that the leaf lacks
	put      []byte // the entry of that
}

// fill makes the frame f, whose lock the caller holds, the leaf b, and its entries those of the
// frame. After an error the client is given up.
func (s *session) fill(f *frame, b []byte) error {
	f.fill(b)
	f.mark(s.x.with.caching, s.x.wholeLeaf(pool.Addr(f.addr.Load())))
	e := &s.x.cache.rows
	if e.empty() || !e.some.Load() {
		return nil
	}
	var v view
	f.open(&v)
	for i := range v.count {
		w := f.word(v.dir + i)
		if w&0xfff == 0 || f.refers(w, s.x.lay) {
			continue
		}
		key, lacks := s.lacksEntry(f, w)
		if lacks { // and none is put in as long as the leaf has a frame
			continue
		}
		if err := s.absorb(f, &v, i, w, key); err != nil {
			return s.x.giveUp(err)
		}
	}
	return nil
}

// lacksEntry reports whether the hints say that the key in the slot with word w has no entry.
// Otherwise it returns the key, which stays until the next call.
func (s *session) lacksEntry(f *frame, w uint64) (key []byte, lacks bool) {
	e := &s.x.cache.rows
	_, off, n := slotted.Slot(w)
	if !s.x.lay.Uint64 {
		s.filling.absorbed = f.bytes(off, n, s.filling.absorbed[:0])
		key = s.x.lay.KeyOf(s.filling.absorbed)
		return key, e.lacks(e.place(key))
	}
	number := f.word(off / 8)
	if e.lacks(e.placeOf(hashOfNumber(number), 8)) {
		return nil, true
	}
	s.filling.absorbed = binary.LittleEndian.AppendUint64(s.filling.absorbed[:0], number)
	return s.filling.absorbed, false
}

// absorb takes out the entry of key, which is in slot i of f, whose word is w. If it is unwritten
// its value becomes that of the slot.
func (s *session) absorb(f *frame, v *view, i int, w uint64, key []byte) error {
	x := s.x
	e := &x.cache.rows
	p, b, err := x.lockPlace(key)
	if err != nil {
		return err
	}
	defer unlock(b)
	number, at, head := seek(b, p.head, key)
	switch {
	case head == 0:
	case head&unwritten == 0:
		seqlock.Store(&b[at], head|stale)
		*f.changed() |= 1 << (i % 64) // it is put in again when the leaf leaves its frame
	default:
		position := b[at+extent(head)-1]
		value := valueAt(b, at, head, s.filling.newer[:0])
		s.filling.newer = value
		s.filling.put = x.lay.PutEntry(s.filling.put[:cap(s.filling.put)], key, value)
		over := f.own(i, w, len(s.filling.put))
		if over == 0 {
			return fmt.Errorf("leaf %v has no room for what key %x has by now: %w", pool.Addr(f.addr.Load()), key, index.ErrFormat)
		}
		f.put(x.lay, v, i, over, x.lay.Fingerprint(key), s.filling.put)
		e.rewrite(p.bucket, number, at, p.head|stale, key, value, count(b, number), 0)
		x.dirty.absorb(f, position)
		f.lsn.Store(max(f.lsn.Load(), position))
	}
	return nil
}

// lockPlace locks the bucket of key, which may be another one each time that it tries: removed ones
// stay locked.
func (x *dex) lockPlace(key []byte) (p spot, b []uint64, err error) {
	err = x.insist(func() (ok bool) {
		p, b, ok = x.cache.rows.acquire(key)
		return ok
	})
	return p, b, err
}

// lockBucket locks b, which stays the bucket that it is: nobody else changes their number.
func (x *dex) lockBucket(b []uint64) error { return x.insist(func() bool { return lock(b) }) }

// tryBucket locks b, unless somebody has it for more than a few instructions.
func (x *dex) tryBucket(b []uint64) bool {
	for range bucketTries {
		if lock(b) {
			return true
		}
		x.env.Yield()
	}
	return false
}

// insist calls take until it has locked a bucket. Who has it holds it for a few instructions, and
// waits for nothing but dirty.mu, whose holders wait for nothing.
func (x *dex) insist(take func() bool) error {
	for try := 0; !take(); try++ {
		switch {
		case try < bucketTries:
			x.env.Yield()
		case try < bucketTries+int(bucketLimit/bucketPause):
			x.env.Sleep(bucketPause)
		default:
			return fmt.Errorf("the bucket of an entry is locked for %v", bucketLimit)
		}
	}
	return nil
}

const (
	bucketTries = 100
	bucketPause = time.Millisecond
	bucketLimit = 10 * time.Second
)

// checkNoEntry panics if an entry of key holds, whose leaf has a frame that the caller has locked.
func (x *dex) checkNoEntry(key []byte) {
	st := busy
	for st == busy {
		if _, _, st = x.cache.rows.look(x, key, nil); st == busy {
			x.env.Yield()
		}
	}
	invariants.Check(st == absentee, "an entry of key %x holds, and its leaf has a frame", key)
}
