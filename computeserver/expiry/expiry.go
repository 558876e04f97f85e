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

// What the last byte of a stored value says.
//
//	value                       | endless      the pair does not expire
//	value | deadline (8 bytes)  | expires      it does: milliseconds since 1970, big-endian
//
// It stands at the end, so that a value is its stored one cut off. Every other byte is of a later
// version, and refused: what it means for the pair is not known.
const (
	endless = 0
	expires = 1
)

// ErrForm is returned when a stored value has another last byte. Nothing was done. It is about this
// pair only: others are as they were.
var ErrForm = errors.New("the value is stored in a form that this version does not know; use the version that wrote it")

// AppendStored appends to dst what is stored for value. A deadline of 0 is none.
func AppendStored(dst, value []byte, deadline int64) []byte {
	dst = append(dst, value...)
	if deadline == 0 {
		return append(dst, endless)
	}
	return append(binary.BigEndian.AppendUint64(dst, uint64(deadline)), expires)
}

// Split returns the value, which is the begin of what is stored, and its deadline, 0 if it has
// none. The error wraps ErrForm.
func Split(stored []byte) (value []byte, deadline int64, err error) {
	if n := len(stored) - 1; n >= 0 {
		switch kind := stored[n]; {
		case kind == endless:
			return stored[:n], 0, nil
		case kind == expires && n >= deadlineBytes:
			n -= deadlineBytes
			return stored[:n], int64(binary.BigEndian.Uint64(stored[n:])), nil
		}
	}
	return nil, 0, fmt.Errorf("%w: %d bytes", ErrForm, len(stored))
}

// Passed reports whether a deadline, 0 if there is none, has passed now.
func Passed(deadline, now int64) bool { return deadline != 0 && deadline <= now }
