// Package hash is how a hash lies in one value of an index: its fields and their values, one after
// the other in the order in which the fields came,
//
//	length of the field | field | length of its value | value | length of the next field | ...
//
// with lengths as unsigned varints. A hash is as long as a value at most, some KiB, so it is read
// from its begin to find a field. It has no two fields of the same name. A list of fields is
// written in the same way, without values.
package hash

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrForm is returned when bytes are no hash.
var ErrForm = errors.New("the value is no hash as this version writes it")

// AppendItem appends a field, or a value, to a hash or a list.
func AppendItem(dst, item []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(item))), item...)
}

// AppendList appends each of items to a hash or a list.
func AppendList(dst []byte, items [][]byte) []byte {
	for _, item := range items {
		dst = AppendItem(dst, item)
	}
	return dst
}

// Next takes the first field, or value, off a hash or a list. It is false at the end, and where
// what follows is none.
func Next(b []byte) (item, rest []byte, ok bool) {
	n, at := binary.Uvarint(b)
	if at <= 0 || n > uint64(len(b)-at) {
		return nil, nil, false
	}
	end := at + int(n)
	return b[at:end:end], b[end:], true
}

// NextPair takes the first field off a hash, with its value. It is false at the end, and where what
// follows is none.
func NextPair(h []byte) (field, value, rest []byte, ok bool) {
	if field, rest, ok = Next(h); ok {
		value, rest, ok = Next(rest)
	}
	return field, value, rest, ok
}

// Len is how many fields a hash has.
func Len(h []byte) (n int) {
	for {
		_, _, rest, ok := NextPair(h)
		if !ok {
			return n
		}
		h = rest
		n++
	}
}

// Place is where a field lies in a hash: the field from Begin on, its value from Value to End, each
// behind its length.
type Place struct{ Begin, Value, End int }

// Find returns the value of a field, and where it lies.
func Find(h, field []byte) (value []byte, at Place, ok bool) {
	for rest := h; ; {
		at.Begin = len(h) - len(rest)
		name, values, there := Next(rest)
		if !there {
			return nil, Place{}, false
		}
		at.Value = len(h) - len(values)
		if value, rest, there = Next(values); !there {
			return nil, Place{}, false
		}
		at.End = len(h) - len(rest)
		if bytes.Equal(name, field) {
			return value, at, true
		}
	}
}

// Check returns an error that wraps ErrForm unless b is a hash of at least one field.
func Check(b []byte) error {
	if len(b) == 0 {
		return fmt.Errorf("%w: it has no field", ErrForm)
	}
	for rest := b; len(rest) > 0; {
		at := len(b) - len(rest)
		field, _, next, ok := NextPair(rest)
		if !ok {
			return fmt.Errorf("%w: byte %d of %d", ErrForm, at, len(b))
		}
		rest = next
		if _, first, _ := Find(b, field); first.Begin != at {
			return fmt.Errorf("%w: the field at byte %d is there twice", ErrForm, at)
		}
	}
	return nil
}
