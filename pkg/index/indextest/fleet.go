package indextest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// fleet is the clients of one index whose ranges have owners (index.Partitioned). What a test sees of each client is an index that sends every operation to the owner of
// its key, as compute servers do; and now and then a range moves from one client to another one.
type fleet struct {
	mu      sync.RWMutex // held for reading by operations, for writing by moves
	members []*member
	bounds  []bound // sorted; the first begins at the lowest key
	epoch   uint64
	ops     atomic.Uint64
	moves   int
}

// bound is where a range begins, and whose it is.
type bound struct {
	start []byte
	owner *member
}

// member is one client.
type member struct {
	index.Partitioned
	f    *fleet
	used sync.Map // of *routed that have a session of it
}

const (
	moveEvery  = 200 // operations come between two moves
	mostRanges = 8
)

// join adds a client, to which the first ranges move soon.
func (f *fleet) join(t testing.TB, x index.Index, o index.Options) index.Index {
	t.Helper()
	p, ok := x.(index.Partitioned)
	if !ok {
		t.Fatal("the design does not share everything, and does not implement index.Partitioned")
	}
	m := &member{Partitioned: p, f: f}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members = append(f.members, m)
	if len(f.members) == 1 {
		f.epoch++
		bottom := []byte{}
		if o.Uint64 {
			bottom = number(0)
		}
		must(t, p.Take(pool.Holding{Start: bottom, Epoch: f.epoch}))
		f.bounds = []bound{{bottom, m}}
	}
	return m
}

// Close implements index.Index: the client's ranges go to another one before.
func (m *member) Close() error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	m.f.members = slices.DeleteFunc(m.f.members, func(o *member) bool { return o == m })
	var errs []error
	for i := range m.f.bounds {
		if m.f.bounds[i].owner == m && len(m.f.members) > 0 {
			errs = append(errs, m.f.move(i, m.f.members[0]))
		}
	}
	m.used.Range(func(k, _ any) bool {
		s := k.(*routed)
		errs = append(errs, s.own[m].Close())
		delete(s.own, m)
		return true
	})
	return errors.Join(append(errs, m.Partitioned.Close())...)
}

// Check implements index.Checker: all write back first. What these find before the others have is not looked at: leaves that are old refer to blocks that are used again.
func (m *member) Check() (index.Structure, error) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	for _, o := range m.f.members {
		if o != m {
			_, _ = o.Partitioned.(index.Checker).Check()
		}
	}
	return m.Partitioned.(index.Checker).Check()
}

// Verifies implements index.Checker.
func (m *member) Verifies(a pool.Addr, node []byte) bool {
	return m.Partitioned.(index.Checker).Verifies(a, node)
}

// BulkLoad implements index.Index: the client takes everything first.
func (m *member) BulkLoad(pairs index.Pairs, parallel int) error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	for i := range m.f.bounds {
		if m.f.bounds[i].owner != m {
			if err := m.f.move(i, m); err != nil {
				return err
			}
		}
	}
	return m.Partitioned.BulkLoad(pairs, parallel)
}

// end is where range i ends.
func (f *fleet) end(i int) []byte {
	if i+1 < len(f.bounds) {
		return f.bounds[i+1].start
	}
	return nil
}

// at is the range that holds key.
func (f *fleet) at(key []byte) int {
	i, found := slices.BinarySearchFunc(f.bounds, key, func(b bound, key []byte) int { return bytes.Compare(b.start, key) })
	if !found {
		i--
	}
	return max(0, i) // a key that is too short is whose the lowest key is
}

// move gives range i to another client. Called under mu.
func (f *fleet) move(i int, to *member) error {
	from, start, end := f.bounds[i].owner, f.bounds[i].start, f.end(i)
	if _, err := from.Give(start, end); err != nil {
		return err
	}
	f.epoch++
	f.moves++
	f.bounds[i].owner = to
	return to.Take(pool.Holding{Start: start, End: end, Epoch: f.epoch})
}

// moveSome moves the range from key on, now and then.
func (f *fleet) moveSome(key []byte) error {
	n := f.ops.Add(1)
	if n%moveEvery != 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.members) < 2 {
		return nil
	}
	i := f.at(key)
	from := f.bounds[i].owner
	if !bytes.Equal(f.bounds[i].start, key) && len(f.bounds) < mostRanges {
		f.bounds = slices.Insert(f.bounds, i+1, bound{bytes.Clone(key), from})
		i++
	}
	to := f.members[int(n/moveEvery)%len(f.members)]
	if to == from {
		return nil
	}
	if err := f.move(i, to); err != nil {
		return err
	}
	// Neighbours of one owner become one range.
	f.bounds = slices.CompactFunc(f.bounds, func(a, b bound) bool { return a.owner == b.owner })
	return nil
}

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
	if err := s.f.moveSome(key); err != nil {
		return fmt.Errorf("move a range: %w", err)
	}
	s.f.mu.RLock()
	defer s.f.mu.RUnlock()
	m := s.home // if it is alone, whatever the key is
	if len(s.f.bounds) > 0 {
		m = s.f.bounds[s.f.at(key)].owner
	}
	own, err := s.of(m)
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

// Scan implements index.Session: range by range.
func (s *routed) Scan(start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	if done, err := s.scanAll(start, limit, reverse, visit); done {
		return err
	}
	return s.scanParts(start, limit, reverse, visit)
}

func (s *routed) scanParts(start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	cursor, more := bytes.Clone(start), true
	for more && limit > 0 {
		s.f.mu.RLock()
		var i int
		switch {
		case !reverse:
			i = s.f.at(cursor)
		case len(cursor) == 0:
			i = len(s.f.bounds) - 1
		default:
			if i = s.f.at(cursor); i > 0 && bytes.Equal(s.f.bounds[i].start, cursor) {
				i--
			}
		}
		low, high := s.f.bounds[i].start, s.f.end(i)
		var stray error
		own, err := s.of(s.f.bounds[i].owner)
		if err == nil {
			err = own.Scan(cursor, limit, reverse, func(key, value []byte) bool {
				if !reverse && len(high) > 0 && bytes.Compare(key, high) >= 0 || reverse && bytes.Compare(key, low) < 0 {
					if stray = s.f.connected(i, s.f.at(key)); stray != nil {
						stray = fmt.Errorf("scan shows %x: %w", key, stray)
					}
					return false // of the next range of the same owner
				}
				limit--
				more = visit(key, value)
				return more
			})
		}
		if reverse {
			more, cursor = more && i > 0, bytes.Clone(low)
		} else {
			more, cursor = more && len(high) > 0, bytes.Clone(high)
		}
		s.f.mu.RUnlock()
		if err = errors.Join(err, stray); err != nil {
			return err
		}
	}
	return nil
}

// connected is nil if all ranges between two have the same owner.
func (f *fleet) connected(i, k int) error {
	for r := min(i, k); r < max(i, k); r++ {
		if f.bounds[r].owner != f.bounds[r+1].owner {
			return fmt.Errorf("between it and the keys from %x on lie some of another owner", f.bounds[i].start)
		}
	}
	return nil
}

// scanAll is Scan where there is one range; done is false if there are more.
func (s *routed) scanAll(start []byte, limit int, reverse bool, visit func(key, value []byte) bool) (done bool, err error) {
	s.f.mu.RLock()
	defer s.f.mu.RUnlock()
	if len(s.f.bounds) != 1 {
		return false, nil
	}
	own, err := s.of(s.f.bounds[0].owner)
	if err != nil {
		return true, err
	}
	return true, own.Scan(start, limit, reverse, visit)
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
