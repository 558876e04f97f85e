package memindex

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/verbs"
)

type session struct {
	o         *Index
	s         *Store
	limit     time.Duration
	condemned env.Event
	position  uint64 // that was seen, and may not be durable
	value     []byte // of a batch
}

func (x *session) begin(key []byte) error {
	x.o.ops.Add(1)
	if hook := x.s.hook.Load(); hook != nil {
		(*hook)(key)
	}
	if stuck := x.s.stuck.Load(); stuck != nil && key != nil && *stuck == string(key) && !x.condemned.Wait(x.limit) {
		return fmt.Errorf("access %q: %w", key, index.ErrTimeout)
	}
	if err := x.o.doomed(); err != nil {
		return fmt.Errorf("access %q: %w", key, err)
	}
	if err := x.s.err(); err != nil {
		return fmt.Errorf("access %q: %w", key, err)
	}
	if len(key) > x.s.maxKey {
		return index.ErrKeyTooLong
	}
	return nil
}

// end lets the test do something before the outcome of an operation is seen.
func (x *session) end(key []byte) {
	x.noteSeen()
	if f := x.s.after.Load(); f != nil {
		(*f)(key)
	}
}

func (x *session) Lookup(key, dst []byte) ([]byte, error) {
	if err := x.begin(key); err != nil {
		return dst, err
	}
	defer x.end(key)
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
	defer x.end(key)
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	was, present := x.s.pairs.Get(pair{key: key})
	if err := allowed(present); err != nil {
		return err
	}
	p := pair{bytes.Clone(key), bytes.Clone(value)}
	x.s.pairs.Set(p)
	x.s.note(made{key: p.key, value: p.value, there: true, was: was, had: present})
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
	defer x.end(key)
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	p, ok := x.s.pairs.Delete(pair{key: key})
	if !ok {
		return index.ErrNotFound
	}
	x.s.note(made{key: p.key, was: p, had: true})
	return nil
}

func (x *session) Modify(key []byte, change index.Change) error {
	if err := x.begin(key); err != nil {
		return err
	}
	defer x.end(key)
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	p, found := x.s.pairs.Get(pair{key: key})
	value, action := change(p.value, found)
	now := pair{key: p.key}
	switch {
	case action == index.Put && len(value) > x.s.maxValue:
		return index.ErrValueTooLong
	case action == index.Put:
		now = pair{bytes.Clone(key), bytes.Clone(value)}
		x.s.pairs.Set(now)
	case action == index.Remove && found:
		x.s.pairs.Delete(p)
	default:
		return nil
	}
	x.s.note(made{key: now.key, value: now.value, there: action == index.Put, was: p, had: found})
	return nil
}

// grouper is a session of a store that allows groups.
type grouper struct{ *session }

// Group implements index.Grouper.
func (x grouper) Group(members []index.Member, change func() error) error {
	for i := range members {
		if err := x.begin(members[i].Key); err != nil {
			return err
		}
		defer x.end(members[i].Key)
	}
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	for i := range members {
		m := &members[i]
		p, found := x.s.pairs.Get(pair{key: m.Key})
		m.Old, m.Found, m.Value, m.Action = p.value, found, nil, index.Keep
	}
	if err := change(); err != nil {
		return err
	}
	for i := range members {
		if m := &members[i]; m.Action == index.Put && len(m.Value) > x.s.maxValue {
			return index.ErrValueTooLong
		}
	}
	for i := range members {
		m := &members[i]
		was, had := x.s.pairs.Get(pair{key: m.Key})
		switch {
		case m.Action == index.Put:
			now := pair{bytes.Clone(m.Key), bytes.Clone(m.Value)}
			x.s.pairs.Set(now)
			x.s.note(made{key: now.key, value: now.value, there: true, was: was, had: had})
		case m.Action == index.Remove && had:
			x.s.pairs.Delete(was)
			x.s.note(made{key: was.key, was: was, had: true})
		}
	}
	return nil
}

func (x *session) LookupBatch(keys [][]byte, visit func(i int, value []byte, err error)) error {
	x.batch("look up", keys)
	for i, key := range keys {
		value, err := x.Lookup(key, x.value[:0])
		if err != nil && err != index.ErrNotFound {
			return err
		}
		x.value = value[:0]
		visit(i, value, err)
	}
	return nil
}

func (x *session) Prepare(keys, _ [][]byte) error {
	x.batch("prepare", keys)
	return x.s.err()
}

func (x *session) batch(what string, keys [][]byte) {
	if f := x.s.together.Load(); f != nil {
		(*f)(what, len(keys))
	}
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
	var last []byte
	defer func() { x.end(last) }()
	each := func(p pair) bool {
		if reverse && len(start) > 0 && bytes.Equal(p.key, start) {
			return true
		}
		if n == limit {
			return false
		}
		n, last = n+1, p.key
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
	x.noteSeen()
	return x.Durable(x.Position())
}

func (x *session) SetLimit(limit time.Duration) { x.limit = limit }

func (x *session) Counters() verbs.Counters { return verbs.Counters{} }

func (x *session) Close() error {
	x.o.mu.Lock()
	defer x.o.mu.Unlock()
	x.o.sessions = slices.DeleteFunc(x.o.sessions, func(other *session) bool { return other == x })
	return nil
}
