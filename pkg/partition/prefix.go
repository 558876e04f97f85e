package partition

import "bytes"

// Keys that are equal up to and including the first occurrence of Options.AtomicPrefix are one
// group, and have one server under every map: none has a boundary within a group. A key without an
// occurrence is a group of its own. So a boundary is one that has no occurrence, or whose first one
// is its end: all keys of a group are at or above its prefix, and each key between two of them has
// that prefix too.

// whole is a measure that cuts between groups only.
type whole struct {
	measure
	end []byte // of a group's prefix
}

// cut implements measure. In place of a key within a group it returns the group's beginning, or,
// with high, its end: so what is cut off never weighs more.
func (m whole) cut(start, end []byte, w uint64, high bool) []byte {
	key := m.measure.cut(start, end, w, high)
	if key == nil || m.divides(key) == nil {
		return key
	}
	prefix := bytes.Clone(m.divides(key))
	if high {
		prefix[len(prefix)-1]++ // the least key above the group: a prefix does not end with 0xff
	}
	return within(start, end, prefix)
}

// divides returns the prefix of the group that a boundary at key would divide; nil = none.
func (m whole) divides(key []byte) []byte {
	i := bytes.Index(key, m.end)
	if i < 0 || i+len(m.end) == len(key) {
		return nil
	}
	return key[:i+len(m.end)]
}
