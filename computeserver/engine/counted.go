package engine

import (
	"bytes"
	"time"

	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/pkg/index"
)

// counts is a session's part in measuring the load. It belongs to the borrower of the session.
type counts struct {
	load   *load
	fences index.Fences // nil in a design that does not know the fences of leaves
	done   uint32       // operations since the session was lent
	left   uint32       // until one is sampled
	stands uint32       // the operations that it stands for
	random uint64
	low    []byte

	// Of every paceEvery-th time that the session is lent, when that was; 0 of the others.
	since time.Duration
	lends uint32
}

func newCounts(l *load, s index.Session) counts {
	c := counts{load: l, left: 1, stands: 1, random: l.env.Uint64() | 1}
	c.fences, _ = s.(index.Fences)
	return c
}

// note counts an operation on key that is about to begin.
func (s *Session) note(key []byte) {
	s.counts.done++
	if s.counts.left--; s.counts.left == 0 {
		s.sample(key)
	}
}

// sample adds key to the sample, as the low fence of its leaf if that is known and lies in the same
// range, so that a boundary there divides no leaf.
func (s *Session) sample(key []byte) {
	c := &s.counts
	at := key
	if c.fences != nil {
		low, ok := c.fences.LowFence(key, c.low[:0])
		if c.low = low; ok && s.by != nil {
			span, is := s.servedSpan(key, false)
			ok = is && bytes.Compare(low, span.Start) > 0
		}
		if ok {
			at = low
		}
	}
	c.random ^= c.random << 13
	c.random ^= c.random >> 7
	c.random ^= c.random << 17
	c.stands = c.load.sample(at, c.stands, c.random>>20)
	c.left = 1 + uint32(uint64(uint32(c.random))*uint64(2*c.stands-1)>>32) // 1 to 2*stands-1
}

// noteLent is called when the session is lent. The rate may have fallen since its last use.
func (c *counts) noteLent() {
	if most := 2 * c.load.skip.Load(); c.left > most {
		c.left = most
	}
	c.since = 0
	if c.lends++; c.lends%paceEvery == 0 {
		c.since = c.load.env.Now()
	}
}

const (
	paceEvery = 8 // of how many loans of a session one is timed
	paceLeast = 4 // and how many operations it has at least, to count
)

// repaid reports the counts.
func (c *counts) repaid() {
	if c.done > 0 {
		if c.since > 0 && c.done >= paceLeast {
			c.load.noteDurations((c.load.env.Now() - c.since) / time.Duration(c.done))
		}
		c.load.done.Add(uint64(c.done))
		c.done = 0
	}
}

// Counted operations of a session. Where pairs may expire, they are those of s.expiring.

func (s *Session) Lookup(key, dst []byte) ([]byte, error) {
	s.note(key)
	var value []byte
	var err error
	if s.expiring == nil {
		value, err = s.Session.Lookup(key, dst)
	} else {
		value, err = s.expiring.Lookup(key, dst)
	}
	return value, read(err)
}

func (s *Session) Insert(key, value []byte) error {
	s.note(key)
	if s.expiring != nil {
		return s.expiring.Insert(key, value)
	}
	return s.Session.Insert(key, value)
}

func (s *Session) Update(key, value []byte) error {
	s.note(key)
	if s.expiring != nil {
		return s.expiring.Update(key, value)
	}
	return s.Session.Update(key, value)
}

func (s *Session) Upsert(key, value []byte) error {
	s.note(key)
	if s.expiring != nil {
		return s.expiring.Upsert(key, value)
	}
	return s.Session.Upsert(key, value)
}

// upsertMark is Upsert with a mark, which only an index has whose pairs expire.
func (s *Session) upsertMark(key, value []byte, gets expiry.Mark) error {
	if s.expiring == nil {
		return s.Upsert(key, value)
	}
	s.note(key)
	return s.expiring.UpsertMark(key, value, gets)
}

func (s *Session) Delete(key []byte) error {
	s.note(key)
	if s.expiring != nil {
		return s.expiring.Delete(key)
	}
	return s.Session.Delete(key)
}

// modify runs the session's modification.
func (s *Session) modify(key []byte) error {
	s.note(key)
	if s.expiring != nil {
		return s.expiring.ModifyUntil(key, s.changeMark)
	}
	return s.Session.Modify(key, s.change)
}

// lookupMark is Lookup of a pair of any type, with its mark.
func (s *Session) lookupMark(key, dst []byte) (value []byte, is expiry.Mark, err error) {
	if s.expiring == nil {
		value, err = s.Lookup(key, dst)
		return value, is, err
	}
	s.note(key)
	value, is, err = s.expiring.LookupMark(key, dst)
	return value, is, read(err)
}

// LookupBatch counts one operation for each key.
func (s *Session) LookupBatch(keys [][]byte, visit func(i int, value []byte, err error)) error {
	for _, key := range keys {
		s.note(key)
	}
	if s.expiring != nil {
		return read(s.expiring.LookupBatch(keys, visit))
	}
	return read(s.Session.LookupBatch(keys, visit))
}

// Prepare counts nothing: the changes do.
func (s *Session) Prepare(keys, values [][]byte) error {
	if s.expiring != nil {
		return read(s.expiring.Prepare(keys, values))
	}
	return read(s.Session.Prepare(keys, values))
}

// scan counts as one operation, on the key where it begins, unless it sweeps. visit is told of
// pairs whose deadline has passed, too: see expiry.Session.Scan.
func (s *Session) scan(start []byte, limit int, reverse, sweeps bool, visit func(key, value []byte, is expiry.Mark, passed bool) bool) error {
	switch {
	case sweeps:
	case reverse && len(start) == 0:
		s.counts.done++ // the upper end is no key
	default:
		s.note(start)
	}
	if s.expiring != nil {
		return read(s.expiring.Scan(start, limit, reverse, visit))
	}
	return read(s.Session.Scan(start, limit, reverse, func(key, value []byte) bool { return visit(key, value, expiry.Mark{}, false) }))
}

// expire removes the pair of key if it has expired, and counts nothing: see expiry.Session.Expire.
func (s *Session) expire(key, dst []byte) ([]byte, error) {
	value, _, err := s.expiring.Expire(key, dst)
	return value, read(err)
}
