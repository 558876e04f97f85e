// Package memindex is an ordered map behind the index contract: a stand-in for the designs in tests
// of what stands above them. Several servers may open the same [Store], as several clients open the
// same index.
package memindex

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/tidwall/btree"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
)

// Store is what all indexes opened from it share.
type Store struct {
	maxKey, maxValue int
	mu               env.Mutex
	pairs            *btree.BTreeG[pair]
	fault            atomic.Pointer[error]
	hook             atomic.Pointer[func(key []byte)]
	after            atomic.Pointer[func(key []byte)]
	stuck            atomic.Pointer[string]
	watch            atomic.Pointer[func(key, value []byte, there bool)]
	env              env.Env
	openNow          []*Index // under mu

	together atomic.Pointer[func(what string, keys int)]
	groups   atomic.Bool

	log      atomic.Pointer[func(position uint64) error]
	appended atomic.Uint64 // the position of the newest change
	durable  atomic.Uint64 // changed under mu
	volatile []made        // those that are not durable; under mu
}

type pair struct{ key, value []byte }

func less(a, b pair) bool { return bytes.Compare(a.key, b.key) < 0 }

// New makes an empty store for keys and values up to these lengths.
func New(e env.Env, maxKey, maxValue int) *Store {
	return &Store{env: e, maxKey: maxKey, maxValue: maxValue, mu: e.NewMutex(), pairs: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
}

// Fail makes every operation return err; nil ends that.
func (s *Store) Fail(err error) {
	if err == nil {
		s.fault.Store(nil)
		return
	}
	s.fault.Store(&err)
}

// OnChange makes every change that is made call f, at the moment when it is made: calls come one
// after the other. f may keep key and value; nil ends that.
func (s *Store) OnChange(f func(key, value []byte, there bool)) {
	if f == nil {
		s.watch.Store(nil)
		return
	}
	s.watch.Store(&f)
}

// BeforeOperation makes every point operation call f first, outside of any lock; nil ends that.
func (s *Store) BeforeOperation(f func(key []byte)) {
	if f == nil {
		s.hook.Store(nil)
		return
	}
	s.hook.Store(&f)
}

// BeforeBatch makes every batch of lookups, and every preparation for changes, call f first, with
// how many keys it has: "look up" and "prepare". Nil ends that.
func (s *Store) BeforeBatch(f func(what string, keys int)) {
	if f == nil {
		s.together.Store(nil)
		return
	}
	s.together.Store(&f)
}

// Len is how many pairs there are.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pairs.Len()
}

// AfterOperation makes every operation call f when it is done, outside of any lock; scans call it
// with the last key. Nil ends that.
func (s *Store) AfterOperation(f func(key []byte)) {
	if f == nil {
		s.after.Store(nil)
		return
	}
	s.after.Store(&f)
}

// HangKey makes point operations on key wait until their session's limit is over or their index is
// condemned.
func (s *Store) HangKey(key string) { s.stuck.Store(&key) }

// Lapse ends the leases of all indexes that were opened so far.
func (s *Store) Lapse(reason string) {
	err := fmt.Errorf("%s: %w", reason, index.ErrFenced)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.openNow {
		o.lapsed.Store(&err)
	}
}

// Open is an index over the store.
func (s *Store) Open() *Index {
	o := &Index{store: s, mu: s.env.NewMutex()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openNow = append(s.openNow, o)
	return o
}

// Index is an open index over a store.
type Index struct {
	store  *Store
	ops    atomic.Uint64
	lapsed atomic.Pointer[error]
	lost   atomic.Uint64 // if its log was lost, the position from which on

	mu       env.Mutex
	sessions []*session // open ones
	doom     error      // why it was condemned
}

// AllowGroups makes sessions from now on index.Grouper.
func (s *Store) AllowGroups() { s.groups.Store(true) }

// Session implements index.Index.
func (o *Index) Session() (index.Session, error) {
	if err := o.store.err(); err != nil {
		return nil, err
	}
	x := &session{o: o, s: o.store, limit: index.DefaultLimit, condemned: o.store.env.NewEvent()}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.doom != nil {
		return nil, o.doom
	}
	o.sessions = append(o.sessions, x)
	if o.store.groups.Load() {
		return grouper{x}, nil
	}
	return x, nil
}

// BulkLoad implements index.Index.
func (o *Index) BulkLoad(pairs index.Pairs, _ int) error {
	if o.store.Len() > 0 {
		return index.ErrNotEmpty
	}
	loaded := btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
	var last []byte
	var failed error
	if err := pairs(func(key, value []byte) bool {
		if loaded.Len() > 0 && bytes.Compare(last, key) >= 0 {
			failed = fmt.Errorf("key %x comes after key %x: %w", key, last, index.ErrUnsorted)
			return false
		}
		last = bytes.Clone(key)
		loaded.Set(pair{last, bytes.Clone(value)})
		return true
	}); err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	o.store.mu.Lock()
	defer o.store.mu.Unlock()
	if o.store.pairs.Len() > 0 {
		return index.ErrNotEmpty
	}
	o.store.pairs = loaded
	return nil
}

// Stats implements index.Index.
func (o *Index) Stats() index.Stats { return index.Stats{Operations: o.ops.Load()} }

// Close implements index.Index.
func (o *Index) Close() error {
	o.store.mu.Lock()
	o.store.openNow = slices.DeleteFunc(o.store.openNow, func(other *Index) bool { return other == o })
	o.store.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.sessions); n > 0 {
		return fmt.Errorf("%d sessions are open", n)
	}
	return nil
}

// Alive says what Lapse said, or Condemn.
func (o *Index) Alive() error {
	if err := o.lapsed.Load(); err != nil {
		return *err
	}
	return nil
}

// Condemn ends what hangs and fails what comes after.
func (o *Index) Condemn(reason error) {
	err := fmt.Errorf("condemned: %w: %w", index.ErrFenced, reason)
	o.lapsed.CompareAndSwap(nil, &err)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.doom == nil {
		o.doom = err
	}
	for _, x := range o.sessions {
		x.condemned.Set()
	}
}

func (o *Index) doomed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.doom
}

func (s *Store) err() error {
	if e := s.fault.Load(); e != nil {
		return *e
	}
	return nil
}
