package resp

import (
	"bytes"
	"slices"
	"strings"
)

// A position is a cursor of SCAN or ZSCAN that says itself where the scan goes on, so every server
// understands it, whatever became of the server that gave it, and nothing is remembered. It is a
// bound: keys below it have been returned. 52 bits hold no key, so it is written as a path from the
// prefix of the scan's pattern downwards:
//
//   - a byte of the bound, as it is;
//   - shared n: the n bytes that all keys have in common that begin with the path so far. A reader
//     learns them from the first and the last of those keys.
//
// No key that is there during the whole scan is left out. Let k be one, not below the bound when
// the path was written, and p the path up to a shared part. If k begins with p, it was between the
// first and the last key then, so it has the n bytes that those had in common, whatever came and
// went meanwhile. A reader that finds a first and a last key with n common bytes has k between
// them, so they are k's bytes, and those of the bound. If the two differ within n bytes, the reader
// goes on at p, which is below the bound: keys are returned again. If k does not begin with p, it
// is above all keys that do, and so above any bound that begins with p. Nothing here needs the keys
// to be read at one moment.
//
// The scan ends: a step passes a key at least, and its position is above that key. A reader goes
// back to p only where a key came meanwhile that is the first to differ from its neighbours within
// those bytes. Redis too promises an end only where keys do not come faster than they are returned.
//
// A position of ZSCAN is one of members instead of keys, in all else the same.
//
// A bound whose path takes more than 52 bits is remembered by its server instead (cursors). No way
// is known to have a position for each bound:
//
//   - A path that ends earlier, and how many keys of it were returned, would leave a key out for
//     each of these that goes.
//   - A path that ends earlier, and all of its keys in one step, may be all keys.
//   - An order of hashes, of which 52 bits are a place, is not that of the index: each step would
//     read all keys.

// Cursors from positions on are positions, and below are numbers of the table (cursors).
const (
	positions  = 1 << 52
	cursorsEnd = 1 << 53
)

// usual are the bytes that keys mostly vary in. Each is one symbol of a path.
const usual = "0123456789abcdefghijklmnopqrstuvwxyz:-_/."

// Symbols of a path, each a digit to the base symbols. 0 is its end, and from 1 on they are the
// usual bytes.
const (
	symbolBytes  = uint64(len(usual)) + 1 // how many less 1 follows, of bytesMost, then other bytes
	symbolShared = uint64(len(usual)) + 2 // how many less 1 follows, of sharedMost
	symbols      = uint64(len(usual)) + 3
	bytesMost    = 8
	sharedMost   = 64
)

// digit is a number below radix.
type digit struct{ value, radix uint64 }

// path is written so that its first digit is the least significant one.
type path []digit

func (p path) bytes(b []byte) path {
	for len(b) > 0 {
		if i := strings.IndexByte(usual, b[0]); i >= 0 {
			p, b = append(p, digit{uint64(i) + 1, symbols}), b[1:]
			continue
		}
		n := 1
		for n < min(len(b), bytesMost) && strings.IndexByte(usual, b[n]) < 0 {
			n++
		}
		p = append(p, digit{symbolBytes, symbols}, digit{uint64(n - 1), bytesMost})
		for _, c := range b[:n] {
			p = append(p, digit{uint64(c), 256})
		}
		b = b[n:]
	}
	return p
}

func (p path) shared(n int) path {
	return append(p, digit{symbolShared, symbols}, digit{uint64(n - 1), sharedMost})
}

// cursor is the path as a number; false if that has too many bits.
func (p path) cursor() (uint64, bool) {
	var n uint64
	for _, d := range slices.Backward(p) {
		if n = n*d.radix + d.value; n >= positions {
			return 0, false
		}
	}
	return positions | n, true
}

// sharedBy returns the bytes behind prefix that all keys have in common that begin with it; empty
// if there are none.
type sharedBy func(prefix []byte) ([]byte, error)

// writePosition returns the cursor for a bound of a scan of keys that begin with prefix; false if
// it does not fit.
func writePosition(prefix, bound []byte, sharedBy sharedBy) (cursor uint64, fits bool) {
	rest, within := bytes.CutPrefix(bound, prefix)
	if !within {
		return 0, false
	}
	var p path
	for len(rest) > 0 {
		if cursor, fits := p.bytes(rest).cursor(); fits {
			return cursor, true
		}
		if _, fits := p.cursor(); !fits {
			return 0, false
		}
		shared, err := sharedBy(bound[:len(bound)-len(rest)])
		if err != nil {
			return 0, false
		}
		if n := min(len(shared), sharedMost); n > 1 {
			if n >= len(rest) || !bytes.HasPrefix(rest, shared[:n]) {
				return 0, false // keys came or went meanwhile
			}
			p, rest = p.shared(n), rest[n:]
		}
		p, rest = p.bytes(rest[:1]), rest[1:]
	}
	return p.cursor()
}

// readPosition returns the bound of a cursor that writePosition made for the same prefix, or a
// lower one, of at most longest bytes.
func readPosition(cursor uint64, prefix []byte, longest int, sharedBy sharedBy) (bound []byte, err error) {
	n := cursor &^ positions
	next := func(radix uint64) (value uint64) {
		value, n = n%radix, n/radix
		return value
	}
	bound = bytes.Clone(prefix)
	for n > 0 && len(bound) < longest {
		switch symbol := next(symbols); symbol {
		case 0: // nobody wrote that
			return bound, nil
		case symbolBytes:
			for many := next(bytesMost) + 1; many > 0 && len(bound) < longest; many-- {
				bound = append(bound, byte(next(256)))
			}
		case symbolShared:
			many := int(next(sharedMost)) + 1
			shared, err := sharedBy(bound)
			if err != nil || len(shared) < many {
				return bound, err
			}
			bound = append(bound, shared[:many]...)
		default:
			bound = append(bound, usual[symbol-1])
		}
	}
	return bound, nil
}

// separator is the shortest bound above key that is not above next, which is above key.
func separator(key, next []byte) []byte {
	n := 0
	for n < len(key) && key[n] == next[n] {
		n++
	}
	return next[:n+1]
}

// common is the beginning that two keys have in common.
func common(a, b []byte) []byte {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return a[:n]
}
