package indextest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// fleet is the clients of one index whose ranges have owners (index.Partitioned). What a test sees
// of each client is an index that sends every operation to the owner of its key, as compute servers
// do; and now and then a range moves from one client to another one, beside operations on all other
// keys (index.Partitioned).
//
// Operations and moves hold mu for reading; what concerns all clients holds it for writing. An
// operation holds the lock of its range for reading, a move that of the range that moves for
// writing. Nobody waits for the lock of a range with that of one above it, nor with table.
type fleet struct {
	mu      sync.RWMutex
	members []*member // guarded by mu
	ops     atomic.Uint64

	table sync.RWMutex // guards the rest; a leaf of the lock order
	from  []*bound     // sorted; the first begins at the lowest key
	epoch uint64
	last  []byte // where a range was to begin the last time
	moves int
}

// bound is where a range begins, and whose it is. While somebody holds busy, both stand, and so
// does where the range ends.
type bound struct {
	start []byte
	owner *member
	busy  sync.RWMutex
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
		f.from = []*bound{{start: bottom, owner: m}}
	}
	return m
}

// Close implements index.Index: the client's ranges go to another one before.
func (m *member) Close() error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	m.f.members = slices.DeleteFunc(m.f.members, func(o *member) bool { return o == m })
	var errs []error
	for i, b := range m.f.from {
		if b.owner == m && len(m.f.members) > 0 {
			errs = append(errs, m.f.move(b, m.f.end(i), m.f.members[0]))
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

// Check implements index.Checker: all write back first. What one finds wrong before all have
// written back is looked at again then: leaves that are old refer to blocks that are used again.
func (m *member) Check() (index.Structure, error) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	again := false
	for _, o := range m.f.members {
		if o == m {
			continue
		}
		if _, err := o.Partitioned.(index.Checker).Check(); err != nil {
			again = true
		}
	}
	found, err := m.Partitioned.(index.Checker).Check()
	if err != nil || !again {
		return found, err
	}
	for _, o := range m.f.members {
		if _, err := o.Partitioned.(index.Checker).Check(); err != nil {
			return found, fmt.Errorf("another client, when all had written back: %w", err)
		}
	}
	return found, nil
}

// Verifies implements index.Checker.
func (m *member) Verifies(a pool.Addr, node []byte) bool {
	return m.Partitioned.(index.Checker).Verifies(a, node)
}

// BulkLoad implements index.Index: the client takes everything first.
func (m *member) BulkLoad(pairs index.Pairs, parallel int) error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	for i, b := range m.f.from {
		if b.owner != m {
			if err := m.f.move(b, m.f.end(i), m); err != nil {
				return err
			}
		}
	}
	return m.Partitioned.BulkLoad(pairs, parallel)
}

// end is where range i ends.
func (f *fleet) end(i int) []byte {
	if i+1 < len(f.from) {
		return f.from[i+1].start
	}
	return nil
}

// at is the range that holds key.
func (f *fleet) at(key []byte) int {
	i, found := slices.BinarySearchFunc(f.from, key, func(b *bound, key []byte) int { return bytes.Compare(b.start, key) })
	if !found {
		i--
	}
	return max(0, i) // a key that is too short is whose the lowest key is
}

// divided reports whether keys have owners.
func (f *fleet) divided() bool {
	f.table.RLock()
	defer f.table.RUnlock()
	return len(f.from) > 0
}

// find is the range that holds key.
func (f *fleet) find(key []byte) *bound {
	f.table.RLock()
	defer f.table.RUnlock()
	return f.from[f.at(key)]
}

// move gives b, which ends at end, to another client. Nobody is in an operation on its keys.
func (f *fleet) move(b *bound, end []byte, to *member) error {
	if _, err := b.owner.Give(b.start, end); err != nil {
		return fmt.Errorf("give: %w", err)
	}
	f.table.Lock()
	b.owner = to
	f.epoch++
	f.moves++
	epoch := f.epoch
	f.table.Unlock()
	if err := to.Take(pool.Holding{Start: b.start, End: end, Epoch: epoch}); err != nil {
		return fmt.Errorf("take: %w", err)
	}
	return nil
}

// moveSome moves a range that begins at key, now and then, beside operations on the keys before and
// behind it. Called under mu.
func (f *fleet) moveSome(key []byte) error {
	n := f.ops.Add(1)
	if n%moveEvery != 0 || len(f.members) < 2 {
		return nil
	}
	b := f.find(key)
	for b.busy.Lock(); f.find(key) != b; b.busy.Lock() {
		b.busy.Unlock()
		b = f.find(key)
	}
	to := f.members[int(n/moveEvery)%len(f.members)]
	if to == b.owner {
		b.busy.Unlock()
		return nil
	}
	b, end := f.cut(b, key)
	defer b.busy.Unlock()
	if err := f.move(b, end, to); err != nil {
		return err
	}
	f.coalesce(b)
	return nil
}

// cut makes a range begin at key, and perhaps end where another one was to begin before, as long as
// there are few. b, which is locked, holds key; so does what is returned, locked, and b is not any
// more.
func (f *fleet) cut(b *bound, key []byte) (moving *bound, end []byte) {
	f.table.Lock()
	defer f.table.Unlock()
	i := f.at(key)
	if !bytes.Equal(b.start, key) && len(f.from) < mostRanges {
		left := b
		b = &bound{start: bytes.Clone(key), owner: left.owner}
		b.busy.Lock()
		i++
		f.from = slices.Insert(f.from, i, b)
		left.busy.Unlock()
	}
	end = f.end(i)
	if l := f.last; bytes.Compare(l, key) > 0 && (len(end) == 0 || bytes.Compare(l, end) < 0) && len(f.from) < mostRanges {
		f.from = slices.Insert(f.from, i+1, &bound{start: l, owner: b.owner})
		end = l
	}
	f.last = bytes.Clone(key)
	return b, end
}

// coalesce makes b, which is locked, and its neighbours one range where they have the same owner
// and nobody uses them.
func (f *fleet) coalesce(b *bound) {
	f.table.Lock()
	defer f.table.Unlock()
	i := slices.Index(f.from, b)
	if i+1 < len(f.from) {
		if right := f.from[i+1]; right.busy.TryLock() {
			if right.owner == b.owner {
				f.from = slices.Delete(f.from, i+1, i+2)
			}
			right.busy.Unlock()
		}
	}
	if i > 0 {
		if left := f.from[i-1]; left.busy.TryLock() {
			if left.owner == b.owner {
				f.from = slices.Delete(f.from, i, i+1)
			}
			left.busy.Unlock()
		}
	}
}
