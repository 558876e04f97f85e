// Package expiry lets pairs of an index expire. It stands above the designs, which know nothing of
// it: a [Session] wraps one of any design, and stores each pair's deadline behind its value.
//
// # Expiry is a deletion
//
// A pair whose deadline has passed by the clock of the server that meets it is removed by that
// server, in one step with the look at its deadline (index.Session.Modify). Only then the server
// answers that the key is not there. So the index itself decides whether a pair has expired, once
// and for all servers, and clocks only decide when. It follows, however far clocks are off:
//
//   - A pair that was answered as expired never comes back: not at a server whose clock is behind,
//     not after a handover, and not after a crash, because the answer waits until the removal is
//     durable as it waits for every other change that its session made.
//   - A pair that was written again is never removed by its former deadline: the look at the
//     deadline and the removal are one step.
//   - Operations stay linearizable. An expiry is a DELETE that some server makes at some moment
//     after the deadline by that server's clock.
//
// The other way, to hide what has expired and leave its removal to later, needs clocks that agree:
// a handover to a server whose clock is behind shows the pair again. It also saves nothing, since
// each pair has to be removed once in any case.
//
// A clock that is ahead removes a pair too early by as much as it is ahead; one that is behind
// keeps it longer by as much. [Clock] keeps it from jumping.
package expiry

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Bytes is how many bytes longer than its value a stored value may be.
const Bytes = 1 + deadlineBytes

const deadlineBytes = 8

// Mark is what is stored of a pair beside its value.
type Mark struct {
	Deadline int64 // milliseconds since 1970; 0 = it does not expire
	Type     Type
}

// Type is what the value is. It has the numbers of rpcv1.Pair_Type.
type Type uint8

// The types.
const (
	String    Type = iota // any bytes
	Hash                  // package hash says how it is written
	SortedSet             // the head of one: package sortedset says what it is
	numTypes
)

// The last byte of a stored value has one bit, and the type.
//
//	value                       | 0, 2, 4   the pair does not expire
//	value | deadline (8 bytes)  | 1, 3, 5   it does: milliseconds since 1970, big-endian
//	                              0, 1      the value is a string
//	                              2, 3      it is a hash
//	                              4, 5      it is the head of a sorted set
//
// It stands at the end, so that a value is its stored one cut off. The byte is not the user's, so
// no string is taken for a hash, whatever its bytes are. Every other byte is of a later version,
// and refused: what it means for the pair is not known. So does a version that knows no hashes
// refuse theirs.
const (
	expires = 1
	typed   = 2 // times the type
)

// ErrForm is returned when a stored value has another last byte. Nothing was done. It is about this
// pair only: others are as they were.
var ErrForm = errors.New("the value is stored in a form that this version does not know; use the version that wrote it")

// ErrType is returned when a pair was asked for its string and has another type. Nothing was done.
var ErrType error = wrongType{}

type wrongType struct{}

// Error is what Redis says.
func (wrongType) Error() string { return "Operation against a key holding the wrong kind of value" }

// AppendStored appends to dst what is stored for value.
func AppendStored(dst, value []byte, is Mark) []byte {
	dst = append(dst, value...)
	form := typed * byte(is.Type)
	if is.Deadline == 0 {
		return append(dst, form)
	}
	return append(binary.BigEndian.AppendUint64(dst, uint64(is.Deadline)), form|expires)
}

// Split returns the value, which is the begin of what is stored, and its mark. The error wraps
// ErrForm.
func Split(stored []byte) (value []byte, is Mark, err error) {
	if n := len(stored) - 1; n >= 0 {
		form := stored[n]
		is.Type = Type(form / typed)
		switch {
		case is.Type >= numTypes:
		case form&expires == 0:
			return stored[:n], is, nil
		case n >= deadlineBytes:
			n -= deadlineBytes
			is.Deadline = int64(binary.BigEndian.Uint64(stored[n:]))
			return stored[:n], is, nil
		}
	}
	return nil, Mark{}, fmt.Errorf("%w: %d bytes", ErrForm, len(stored))
}

// Passed reports whether a deadline, 0 if there is none, has passed now.
func Passed(deadline, now int64) bool { return deadline != 0 && deadline <= now }
