// Package state judges the two witnesses of what the operator decided about an object: which of
// them is in force, and which is to be restored. It is pure.
//
// What the operator decides for good (that an index may hold data, on which memory servers, in
// which incarnation) must survive whoever changes objects: `kubectl replace` drops annotations, an
// exported manifest brings old ones back, a copied one brings those of another object, and a backup
// tool restores an object under another UID. So it is written down twice, as the same values:
//
//	object      annotations, and a stamp in one more annotation
//	record      a ConfigMap whose name has the object's UID: the same values, and a stamp
//
// A stamp is the UID of the object, a sequence number and a hash of both and of the values. It says
// for whom and when the values were written, and whether they are all there:
//
//	                         record absent      record damaged   record with n
//	object without a stamp   nothing is known   stop             the record
//	object of another UID    nothing is known   stop             the record
//	object damaged           stop               stop             the record
//	object with m            the object         the object       the higher; m = n: see below
//	object of a predecessor  see above          see above        the object
//
// With equal numbers both are in force if they are equal, else it is to stop.
// Damaged means that stamp and values do not fit together. What is not in force is restored from
// what is. To stop means that nothing is decided about the object until somebody settles it.
//
// A predecessor is an operator of a version that knows no stamps, and ran after one that does. It
// read the object's values alone, changed them, and acted upon them: so they are in force, and get
// a number above both. Only the field manager of a value tells its writes from damage.
//
// A decision is written into the object first, by compare-and-swap with its resourceVersion, so
// that it stands only if the object is still what was decided upon, spec included. Then it is
// written into the record, by compare-and-swap too. Nothing is done that relies on it before both
// are written. Why that is safe, where one side of the table may change at any time:
//
//   - An operator that dies between the two leaves an object with n+1 and a record with n. The next
//     one completes n+1. If the object is replaced before that, n is in force again; nothing was
//     done that relied on n+1.
//   - Of two operators that decide from n, the object's resourceVersion lets one through. One that
//     stood still between its two writes finds a record that has another resourceVersion.
//   - Somebody who changes one side, to whatever it was at any time, changes nothing: the other
//     side has a higher number, or is the only one that is whole.
//   - Two sides that are whole, have the same number and differ come from an operator that stood
//     still, while the object was replaced and another operator decided. Which of the two acted
//     cannot be seen. So nothing follows from either.
package state

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// ErrDamaged is returned when neither witness is whole, and at least one was written for the
// object.
var ErrDamaged = errors.New("neither the annotations nor the record are whole")

// ErrDiffer is returned when both witnesses are whole, have the same sequence number and differ.
var ErrDiffer = errors.New("the annotations and the record have the same sequence number and differ")

// Witness is one of the two, as it was read.
type Witness struct {
	Stamp  string
	Values map[string]string // never empty ones

	// Predecessor says that an operator that knows no stamps wrote a value that the record has not.
	Predecessor bool
}

// State is what is in force.
type State struct {
	Sequence uint64 // 0 = neither witness was written for the object
	Values   map[string]string

	ObjectBehind bool // the annotations are to be restored
	RecordBehind bool // the record is to be restored
}

// Stamp is that of a state of the object with this UID.
func Stamp(uid string, sequence uint64, values map[string]string) string {
	text, err := json.Marshal(values) // with sorted keys
	if err != nil {
		panic(fmt.Sprintf("state: encode %v: %v", values, err)) // strings can be encoded
	}
	prefix := uid + "/" + strconv.FormatUint(sequence, 10)
	sum := sha256.Sum256(append([]byte(prefix+"/"), text...))
	return prefix + "/" + hex.EncodeToString(sum[:8])
}

// worth is how much a witness counts.
type worth int

const (
	absent  worth = iota // or of another object
	damaged              // of this object, and not as it was written
	whole
)

// read is what a witness is worth to the object with this UID; nil = it is not there.
func (w *Witness) read(uid string) (worth, uint64) {
	if w == nil || w.Stamp == "" {
		return absent, 0
	}
	of, rest, _ := strings.Cut(w.Stamp, "/")
	number, _, _ := strings.Cut(rest, "/")
	sequence, err := strconv.ParseUint(number, 10, 64)
	switch {
	case err != nil || sequence == 0:
		return damaged, 0
	case of != uid:
		return absent, 0
	case Stamp(uid, sequence, w.values()) != w.Stamp:
		return damaged, sequence
	}
	return whole, sequence
}

func (w *Witness) values() map[string]string {
	if w.Values == nil {
		return map[string]string{}
	}
	return w.Values
}

// Judge says what is in force of the object with this UID. A record that is there was written for
// the object: its name says so.
func Judge(uid string, object Witness, record *Witness) (State, error) {
	o, m := object.read(uid)
	r, n := record.read(uid)
	if record != nil && r == absent {
		r = damaged
	}
	switch {
	case o == whole && r == whole && m == n && object.Stamp != record.Stamp:
		return State{}, fmt.Errorf("%w (%d)", ErrDiffer, m)
	case o == whole && (r != whole || m >= n):
		return State{Sequence: m, Values: maps.Clone(object.values()), RecordBehind: r != whole || m > n}, nil
	case r == whole && o != whole && object.Predecessor:
		return State{Sequence: max(m, n) + 1, Values: maps.Clone(object.values()), ObjectBehind: true, RecordBehind: true}, nil
	case r == whole:
		return State{Sequence: n, Values: maps.Clone(record.values()), ObjectBehind: true}, nil
	case o == absent && r == absent:
		return State{Values: map[string]string{}}, nil
	}
	return State{}, ErrDamaged
}

// With is the state after a decision: these values are set, and empty ones are removed. It is s
// itself if that changes nothing.
func (s State) With(changes map[string]string) State {
	values := maps.Clone(s.Values)
	for key, value := range changes {
		if values[key] = value; value == "" {
			delete(values, key)
		}
	}
	if maps.Equal(values, s.Values) {
		return s
	}
	return State{Sequence: s.Sequence + 1, Values: values, ObjectBehind: true, RecordBehind: true}
}
