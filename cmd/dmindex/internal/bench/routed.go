package bench

import (
	"errors"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// session makes a session on a compute server: of its own index, or one that finds the owner of
// each key.
func (b *bencher) session(server int) (index.Session, error) {
	if b.owners == nil {
		return b.members[server].Session()
	}
	r := &routed{b: b, own: make([]index.Session, len(b.members)), limit: index.DefaultLimit}
	r.count = r.pass
	_, err := r.of(server)
	return r, err
}

// routed is a session that sends each operation to the owner of its key, as clients and compute
// servers do. Sessions of owners are made when they are first needed.
type routed struct {
	b     *bencher
	own   []index.Session // by server
	limit time.Duration

	// of the scan under way
	visit  func(key, value []byte) bool
	seen   int
	enough bool
	count  func(key, value []byte) bool // pass, as a value, so that scans allocate nothing
}

func (r *routed) of(server int) (index.Session, error) {
	if r.own[server] == nil {
		s, err := r.b.members[server].Session()
		if err != nil {
			return nil, err
		}
		s.SetLimit(r.limit)
		r.own[server] = s
	}
	return r.own[server], nil
}

// at is the session of the owner of a key.
func (r *routed) at(key []byte) (index.Session, error) { return r.of(r.server(key)) }

// server is the one that serves a key.
func (r *routed) server(key []byte) int { return min(r.b.owners.at(key), r.b.owners.served()-1) }

func (r *routed) Lookup(key, dst []byte) ([]byte, error) {
	s, err := r.at(key)
	if err != nil {
		return dst, err
	}
	return s.Lookup(key, dst)
}

func (r *routed) Insert(key, value []byte) error {
	s, err := r.at(key)
	if err != nil {
		return err
	}
	return s.Insert(key, value)
}

func (r *routed) Update(key, value []byte) error {
	s, err := r.at(key)
	if err != nil {
		return err
	}
	return s.Update(key, value)
}

func (r *routed) Upsert(key, value []byte) error {
	s, err := r.at(key)
	if err != nil {
		return err
	}
	return s.Upsert(key, value)
}

func (r *routed) Delete(key []byte) error {
	s, err := r.at(key)
	if err != nil {
		return err
	}
	return s.Delete(key)
}

func (r *routed) Modify(key []byte, change index.Change) error {
	s, err := r.at(key)
	if err != nil {
		return err
	}
	return s.Modify(key, change)
}

// LookupBatch implements index.Session: server by server.
func (r *routed) LookupBatch(keys [][]byte, visit func(i int, value []byte, err error)) error {
	for server := range r.own {
		var some [][]byte
		var number []int
		for i, key := range keys {
			if r.server(key) == server {
				some, number = append(some, key), append(number, i)
			}
		}
		if len(some) == 0 {
			continue
		}
		s, err := r.of(server)
		if err == nil {
			err = s.LookupBatch(some, func(i int, value []byte, err error) { visit(number[i], value, err) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Prepare implements index.Session.
func (r *routed) Prepare(_, _ [][]byte) error { return nil }

// Operations wait for the log as ever.

func (r *routed) Defer(bool)           {}
func (r *routed) Position() uint64     { return 0 }
func (r *routed) Durable(uint64) error { return nil }

var errReverse = errors.New("bench scans upwards only")

// Scan implements index.Session: where a range ends it goes on at the owner of the next one.
func (r *routed) Scan(start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	if reverse {
		return errReverse
	}
	r.visit, r.seen, r.enough = visit, 0, false
	for server := r.server(start); ; server++ {
		s, err := r.of(server)
		if err == nil {
			err = s.Scan(start, limit-r.seen, false, r.count)
		}
		if err != nil || r.enough || r.seen == limit || server+1 == r.b.owners.served() {
			return err
		}
		start = r.b.owners.low(server + 1)
	}
}

// pass shows a pair to the visitor of the scan.
func (r *routed) pass(key, value []byte) bool {
	r.seen++
	r.enough = !r.visit(key, value)
	return !r.enough
}

func (r *routed) SetLimit(limit time.Duration) {
	r.limit = limit
	for _, s := range r.own {
		if s != nil {
			s.SetLimit(limit)
		}
	}
}

func (r *routed) Counters() (sum verbs.Counters) {
	for _, s := range r.own {
		if s != nil {
			c := s.Counters()
			sum.Sum(&c)
		}
	}
	return sum
}

func (r *routed) Close() error {
	var errs []error
	for i, s := range r.own {
		if s != nil {
			errs = append(errs, s.Close())
			r.own[i] = nil
		}
	}
	return errors.Join(errs...)
}
