// Package memindex is an ordered map behind the index contract: a stand-in for the designs in tests of what stands above them.
// Several servers may open the same [Store], as several clients open the same index.
package memindex

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tidwall/btree"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Store is what all indexes opened from it share.
type Store struct {
	maxKey, maxValue int
	mu               env.Mutex
	pairs            *btree.BTreeG[pair]
	fault            atomic.Pointer[error]
	hook             atomic.Pointer[func(key []byte)]
}

type pair struct{ key, value []byte }

// New makes an empty store for keys and values up to these lengths.
func New(e env.Env, maxKey, maxValue int) *Store {
	less := func(a, b pair) bool { return bytes.Compare(a.key, b.key) < 0 }
	return &Store{maxKey: maxKey, maxValue: maxValue, mu: e.NewMutex(), pairs: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
}

// Fail makes every operation return err; nil ends that.
func (s *Store) Fail(err error) {
	if err == nil {
		s.fault.Store(nil)
		return
	}
	s.fault.Store(&err)
}

// Before makes every point operation call f first, outside of any lock; nil ends that.
func (s *Store) Before(f func(key []byte)) {
	if f == nil {
		s.hook.Store(nil)
		return
	}
	s.hook.Store(&f)
}

// Len is how many pairs there are.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pairs.Len()
}

// Open is an index over the store.
func (s *Store) Open() index.Index { return &opened{store: s} }

type opened struct {
	store *Store
	ops   atomic.Uint64
}

func (o *opened) Session() (index.Session, error) {
	if err := o.store.err(); err != nil {
		return nil, err
	}
	return &session{o: o, s: o.store}, nil
}
func (o *opened) Stats() index.Stats { return index.Stats{Operations: o.ops.Load()} }
func (o *opened) Close() error       { return nil }

func (s *Store) err() error {
	if e := s.fault.Load(); e != nil {
		return *e
	}
	return nil
}

type session struct {
	o *opened
	s *Store
}

func (x *session) begin(key []byte) error {
	x.o.ops.Add(1)
	if hook := x.s.hook.Load(); hook != nil {
		(*hook)(key)
	}
	if err := x.s.err(); err != nil {
		return fmt.Errorf("access %q: %w", key, err)
	}
	if len(key) > x.s.maxKey {
		return index.ErrKeyTooLong
	}
	return nil
}

func (x *session) Lookup(key, dst []byte) ([]byte, error) {
	if err := x.begin(key); err != nil {
		return dst, err
	}
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	p, ok := x.s.pairs.Get(pair{key: key})
	if !ok {
		return dst, index.ErrNotFound
	}
	return append(dst, p.value...), nil
}

// change stores value where allowed says so of the key's presence.
func (x *session) change(key, value []byte, allowed func(present bool) error) error {
	if err := x.begin(key); err != nil {
		return err
	}
	if len(value) > x.s.maxValue {
		return index.ErrValueTooLong
	}
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	_, present := x.s.pairs.Get(pair{key: key})
	if err := allowed(present); err != nil {
		return err
	}
	x.s.pairs.Set(pair{bytes.Clone(key), bytes.Clone(value)})
	return nil
}

func (x *session) Insert(key, value []byte) error {
	return x.change(key, value, func(present bool) error {
		if present {
			return index.ErrExists
		}
		return nil
	})
}

func (x *session) Update(key, value []byte) error {
	return x.change(key, value, func(present bool) error {
		if !present {
			return index.ErrNotFound
		}
		return nil
	})
}

func (x *session) Upsert(key, value []byte) error {
	return x.change(key, value, func(bool) error { return nil })
}

func (x *session) Delete(key []byte) error {
	if err := x.begin(key); err != nil {
		return err
	}
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	if _, ok := x.s.pairs.Delete(pair{key: key}); !ok {
		return index.ErrNotFound
	}
	return nil
}

func (x *session) Scan(start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	if err := x.begin(nil); err != nil {
		return err
	}
	if len(start) > x.s.maxKey {
		return index.ErrKeyTooLong
	}
	x.s.mu.Lock()
	tree := x.s.pairs.Copy()
	x.s.mu.Unlock()
	n := 0
	each := func(p pair) bool {
		if reverse && len(start) > 0 && bytes.Equal(p.key, start) {
			return true
		}
		if n == limit {
			return false
		}
		n++
		return visit(p.key, p.value)
	}
	switch {
	case !reverse:
		tree.Ascend(pair{key: start}, each)
	case len(start) == 0:
		tree.Reverse(each)
	default:
		tree.Descend(pair{key: start}, each)
	}
	return nil
}

func (x *session) SetLimit(time.Duration)   {}
func (x *session) Counters() verbs.Counters { return verbs.Counters{} }
func (x *session) Close() error             { return nil }
