// Package codec is for programs whose keys and values are not bytes. A [Key] makes bytes of a key
// so that an index, which orders bytes, has the keys in their own order; a [Value] makes bytes of a
// value; and a [Map] is an index, or a part of one, by both.
//
// # Keys
//
//	Uint64, Int64   8 bytes, big-endian; of Int64 the bit of the sign is turned
//	Float64         8 bytes, as Int64 of the bits; those of negative numbers are all turned
//	Time            12 bytes: seconds since 1970 as Int64, nanoseconds as 4 bytes
//	String, Bytes   as they are; a zero byte is followed by 255, and 0 1 is the end
//	Pair, Triple    their parts, one after the other
//
// No encoding is the beginning of another one of its codec, so that parts may follow each other.
// The formats do not change: indexes have them.
package codec

import (
	"encoding/json"
	"errors"
	"fmt"
)

// ErrEncoding is wrapped by the errors of bytes that are no encoding of a codec: another one wrote
// them.
var ErrEncoding = errors.New("not an encoding of this codec")

// Key is an encoding of keys that keeps their order: a < b exactly if the bytes of a are below
// those of b. Safe for concurrent use.
type Key[K any] struct {
	// Append appends the encoding of k.
	Append func(dst []byte, k K) []byte
	// Cut takes one key from the front, and returns what is behind it. It keeps nothing of b, and
	// its error wraps ErrEncoding.
	Cut func(b []byte) (k K, rest []byte, err error)
}

// Encode returns the encoding of k.
func (c Key[K]) Encode(k K) []byte { return c.Append(nil, k) }

// Decode is the key that all of b encodes.
func (c Key[K]) Decode(b []byte) (k K, err error) {
	k, rest, err := c.Cut(b)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: %d bytes behind the key", ErrEncoding, len(rest))
	}
	if err != nil {
		var none K
		return none, err
	}
	return k, nil
}

// Value is an encoding of values. Safe for concurrent use.
type Value[V any] struct {
	Encode func(v V) ([]byte, error)
	// Decode may keep b.
	Decode func(b []byte) (V, error)
}

// JSON has values as JSON.
func JSON[V any]() Value[V] {
	return Value[V]{
		Encode: func(v V) ([]byte, error) { return json.Marshal(v) },
		Decode: func(b []byte) (v V, err error) {
			err = json.Unmarshal(b, &v)
			return v, err
		},
	}
}

// Raw has bytes as they are.
var Raw = Value[[]byte]{
	Encode: func(v []byte) ([]byte, error) { return v, nil },
	Decode: func(b []byte) ([]byte, error) { return b, nil },
}

// Text has strings as they are.
var Text = Value[string]{
	Encode: func(v string) ([]byte, error) { return []byte(v), nil },
	Decode: func(b []byte) (string, error) { return string(b), nil },
}
