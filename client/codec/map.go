package codec

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/pkg/keyrange"
)

// Index is what a Map needs of a *client.Client.
type Index interface {
	Get(ctx context.Context, key []byte) ([]byte, error)
	Put(ctx context.Context, key, value []byte) error
	Delete(ctx context.Context, key []byte) error
	Scan(ctx context.Context, start, end []byte, o client.ScanOptions) iter.Seq2[client.Pair, error]
}

// Map is the keys of an index that begin with Prefix, as keys and values of Go. What calls promise,
// and their errors, are those of package client. Safe for concurrent use, if not changed.
type Map[K, V any] struct {
	Index  Index
	Prefix string // of all keys, so that one index may have several maps; none begins with another
	Key    Key[K]
	Value  Value[V]
}

func (m *Map[K, V]) key(k K) []byte { return m.Key.Append([]byte(m.Prefix), k) }

// Get reads the value of k; client.ErrNotFound if there is none.
func (m *Map[K, V]) Get(ctx context.Context, k K) (v V, err error) {
	value, err := m.Index.Get(ctx, m.key(k))
	if err != nil {
		return v, err
	}
	return m.decode(k, value)
}

func (m *Map[K, V]) decode(k K, value []byte) (v V, err error) {
	if v, err = m.Value.Decode(value); err != nil {
		err = fmt.Errorf("decode the value of %v: %w", k, err)
	}
	return v, err
}

// Put sets the value of k, whether it was there or not.
func (m *Map[K, V]) Put(ctx context.Context, k K, v V) error {
	value, err := m.Value.Encode(v)
	if err != nil {
		return fmt.Errorf("encode the value of %v: %w", k, err)
	}
	return m.Index.Put(ctx, m.key(k), value)
}

// Delete removes k; client.ErrNotFound if it is not there.
func (m *Map[K, V]) Delete(ctx context.Context, k K) error { return m.Index.Delete(ctx, m.key(k)) }

// Entry is a key and its value.
type Entry[K, V any] struct {
	Key   K
	Value V
}

// Bounds are what a scan goes through.
type Bounds[K any] struct {
	From *K // inclusive; nil = from the first key
	To   *K // exclusive; nil = to the last key
	// Within is where a key begins, encoded: Uint64.Encode(7) for those of a Pair whose first part
	// is 7. From and To bound it further.
	Within []byte
}

// Scan goes through the entries in the order of their keys. An error is yielded last, with a zero
// Entry: it wraps client.ErrWrongType where a key has a hash or a sorted set. With o.KeysOnly such
// keys are entries, and all values are zero.
func (m *Map[K, V]) Scan(ctx context.Context, of Bounds[K], o client.ScanOptions) iter.Seq2[Entry[K, V], error] {
	start := append([]byte(m.Prefix), of.Within...)
	end := keyrange.PrefixEnd(start)
	if of.From != nil {
		if from := m.key(*of.From); bytes.Compare(from, start) > 0 {
			start = from
		}
	}
	if of.To != nil {
		if to := m.key(*of.To); len(end) == 0 || bytes.Compare(to, end) < 0 {
			end = to
		}
	}
	return func(yield func(Entry[K, V], error) bool) {
		if len(end) > 0 && bytes.Compare(start, end) >= 0 {
			return
		}
		for pair, err := range m.Index.Scan(ctx, start, end, o) {
			e, err := m.entry(pair, err, o.KeysOnly)
			if err != nil {
				yield(Entry[K, V]{}, err)
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// entry is what a scan found.
func (m *Map[K, V]) entry(pair client.Pair, failed error, keysOnly bool) (e Entry[K, V], err error) {
	if failed != nil {
		return e, failed
	}
	if e.Key, err = m.Key.Decode(pair.Key[len(m.Prefix):]); err != nil {
		return e, fmt.Errorf("decode the key %s of the map %q: %w", keyrange.Quote(pair.Key), m.Prefix, err)
	}
	switch {
	case keysOnly:
	case pair.Hash, pair.Member: // also where the codec has a value for these bytes
		err = fmt.Errorf("the key %s of the map %q has a hash or a sorted set: %w", keyrange.Quote(pair.Key), m.Prefix, client.ErrWrongType)
	default:
		e.Value, err = m.decode(e.Key, pair.Value)
	}
	return e, err
}
