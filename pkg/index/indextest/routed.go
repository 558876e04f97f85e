package indextest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Session implements index.Index.
func (m *member) Session() (index.Session, error) {
	s := &routed{f: m.f, home: m, own: map[*member]index.Session{}, limit: index.DefaultLimit}
	_, err := s.of(m)
	return s, err
}

// routed is a session that sends each operation to the owner's client.
type routed struct {
	f     *fleet
	home  *member
	own   map[*member]index.Session
	limit time.Duration
	scans int
}

func (s *routed) of(m *member) (index.Session, error) {
	if own, ok := s.own[m]; ok {
		return own, nil
	}
	own, err := m.Partitioned.Session()
	if err != nil {
		return nil, err
	}
	own.SetLimit(s.limit)
	s.own[m] = own
	m.used.Store(s, nil)
	return own, nil
}

// route calls do with the session of the owner of key, which stays so meanwhile.
func (s *routed) route(key []byte, do func(index.Session) error) error {
	s.f.mu.RLock()
	defer s.f.mu.RUnlock()
	if !s.f.divided() { // it is alone, whatever the key is
		return do(s.own[s.home])
	}
	if err := s.f.moveSome(key); err != nil {
		return fmt.Errorf("move a range: %w", err)
	}
	b := s.f.find(key)
	for b.busy.RLock(); s.f.find(key) != b; b.busy.RLock() {
		b.busy.RUnlock()
		b = s.f.find(key)
	}
	defer b.busy.RUnlock()
	own, err := s.of(b.owner)
	if err != nil {
		return err
	}
	return do(own)
}

func (s *routed) Lookup(key, dst []byte) (out []byte, err error) {
	out = dst
	err = s.route(key, func(o index.Session) (err error) { out, err = o.Lookup(key, dst); return err })
	return out, err
}

func (s *routed) Insert(key, value []byte) error {
	return s.route(key, func(o index.Session) error { return o.Insert(key, value) })
}

func (s *routed) Update(key, value []byte) error {
	return s.route(key, func(o index.Session) error { return o.Update(key, value) })
}

func (s *routed) Upsert(key, value []byte) error {
	return s.route(key, func(o index.Session) error { return o.Upsert(key, value) })
}

func (s *routed) Delete(key []byte) error {
	return s.route(key, func(o index.Session) error { return o.Delete(key) })
}

func (s *routed) Modify(key []byte, change index.Change) error {
	return s.route(key, func(o index.Session) error { return o.Modify(key, change) })
}

// LookupBatch implements index.Session: owner by owner.
func (s *routed) LookupBatch(keys [][]byte, visit func(i int, value []byte, err error)) error {
	return s.parts(keys, func(own index.Session, number []int, some [][]byte) error {
		return own.LookupBatch(some, func(i int, value []byte, err error) { visit(number[i], value, err) })
	})
}

// Prepare implements index.Session: owner by owner.
func (s *routed) Prepare(keys, values [][]byte) error {
	return s.parts(keys, func(own index.Session, number []int, some [][]byte) error {
		theirs := make([][]byte, len(number))
		for i, n := range number {
			theirs[i] = values[n]
		}
		return own.Prepare(some, theirs)
	})
}

// parts calls do for each owner with those of keys that are its own, and their numbers. They do not
// move meanwhile.
func (s *routed) parts(keys [][]byte, do func(own index.Session, number []int, some [][]byte) error) error {
	s.f.mu.RLock()
	defer s.f.mu.RUnlock()
	done := make([]bool, len(keys))
	for i, key := range keys {
		if done[i] {
			continue
		}
		var some [][]byte
		var number []int
		if !s.f.divided() {
			for j, key := range keys {
				some, number, done[j] = append(some, key), append(number, j), true
			}
			if err := do(s.own[s.home], number, some); err != nil {
				return err
			}
			continue
		}
		p := s.f.part(key, false, false)
		for j, key := range keys {
			if j == i || !done[j] && bytes.Compare(key, p.low) >= 0 && (len(p.high) == 0 || bytes.Compare(key, p.high) < 0) {
				some, number, done[j] = append(some, key), append(number, j), true
			}
		}
		own, err := s.of(p.owner)
		if err == nil {
			err = do(own, number, some)
		}
		p.unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// Defer implements index.Session, for the sessions that there are.
func (s *routed) Defer(on bool) {
	for _, o := range s.own {
		o.Defer(on)
	}
}

// Position implements index.Session: there is one if any session has one.
func (s *routed) Position() uint64 {
	for _, o := range s.own {
		if o.Position() > 0 {
			return 1
		}
	}
	return 0
}

// Durable implements index.Session: all that was deferred.
func (s *routed) Durable(uint64) error {
	var errs []error
	for _, o := range s.own {
		errs = append(errs, o.Durable(o.Position()))
	}
	return errors.Join(errs...)
}

// Scan implements index.Session: range by range. Every other scan locks only the range that it is
// in, of which there may be more than one of an owner in a row, and ends at the first key behind
// it: that range may be moving.
func (s *routed) Scan(start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	s.f.mu.RLock()
	defer s.f.mu.RUnlock()
	s.scans++
	cursor, more, alone := bytes.Clone(start), true, s.scans%2 == 0
	for more && limit > 0 {
		p := s.f.part(cursor, reverse, alone)
		var stray error
		own, err := s.of(p.owner)
		if err == nil {
			err = own.Scan(cursor, limit, reverse, func(key, value []byte) bool {
				if !reverse && len(p.high) > 0 && bytes.Compare(key, p.high) >= 0 || reverse && bytes.Compare(key, p.low) < 0 {
					if alone {
						return false
					}
					stray = fmt.Errorf("scan shows %x, which belongs to another owner than the keys from %x up to %x", key, p.low, p.high)
					return false
				}
				limit--
				more = visit(key, value)
				return more
			})
		}
		if reverse {
			more, cursor = more && !p.first, bytes.Clone(p.low)
		} else {
			more, cursor = more && len(p.high) > 0, bytes.Clone(p.high)
		}
		p.unlock()
		if err = errors.Join(err, stray); err != nil {
			return err
		}
	}
	return nil
}

// part is ranges of one owner without a gap, all that there are on both sides, or one alone, with
// their locks for reading: the keys that a scan is an operation on. Where it is all of them, the
// ranges beside it are locked, too: one that came to this owner before the scan begins would be a
// part of the scan.
type part struct {
	locked    []*bound
	owner     *member
	low, high []byte
	first     bool // of all
}

func (p *part) unlock() {
	for _, b := range p.locked {
		b.busy.RUnlock()
	}
}

// part finds the one where a scan goes on from cursor.
func (f *fleet) part(cursor []byte, reverse, alone bool) *part {
	for {
		p := f.readPart(cursor, reverse, alone)
		for _, b := range p.locked {
			b.busy.RLock()
		}
		if now := f.readPart(cursor, reverse, alone); slices.Equal(now.locked, p.locked) {
			return now // ends and owners stand now
		}
		p.unlock()
	}
}

// readPart is the part as the table has it, without locks. An owner that it reads may be about to
// change.
func (f *fleet) readPart(cursor []byte, reverse, alone bool) *part {
	f.table.RLock()
	defer f.table.RUnlock()
	i := f.at(cursor)
	switch {
	case reverse && len(cursor) == 0:
		i = len(f.from) - 1
	case reverse && i > 0 && bytes.Equal(f.from[i].start, cursor):
		i--
	}
	low, high := i, i
	for !alone && low > 0 && f.from[low-1].owner == f.from[i].owner {
		low--
	}
	for !alone && high+1 < len(f.from) && f.from[high+1].owner == f.from[i].owner {
		high++
	}
	p := &part{nil, f.from[i].owner, f.from[low].start, f.end(high), low == 0}
	if !alone { // what lies beside it must not come to its owner
		low, high = max(0, low-1), min(len(f.from)-1, high+1)
	}
	p.locked = slices.Clone(f.from[low : high+1])
	return p
}

func (s *routed) SetLimit(limit time.Duration) {
	s.limit = limit
	for _, o := range s.own {
		o.SetLimit(limit)
	}
}

func (s *routed) Counters() (sum verbs.Counters) {
	for _, o := range s.own {
		c := o.Counters()
		sum.Sum(&c)
	}
	return sum
}

func (s *routed) Close() error {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	var errs []error
	for m, o := range s.own {
		errs = append(errs, o.Close())
		m.used.Delete(s)
		delete(s.own, m)
	}
	return errors.Join(errs...)
}
