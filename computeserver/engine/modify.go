package engine

import (
	"bytes"
	"fmt"
	"strconv"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/pkg/index"
)

// Operations that read a pair and change it in one step are a decision each: what becomes of the
// pair, by what the key has. The index asks for it while nobody else changes the pair
// (index.Session.Modify), perhaps several times; what the last decision says is done, and answered.
//
// They are done once. No server and no client repeats one whose answer was lost: it ends as
// UNKNOWN.

// decision says what becomes of a pair, of the types that it is for. The answer goes into m.o and
// m.dst, and what the key gets into m.put and m.gets. An error leaves the pair as it is.
type decision func(m *modification, old []byte, found bool) (index.Action, error)

// modification is the operation under way in a session. It is kept, so that an operation allocates
// nothing.
type modification struct {
	op   *rpcv1.Operation
	o    *rpcv1.Outcome
	dst  []byte // of the outcome's value
	put  []byte
	most int // bytes of a value
	now  func() int64

	item []byte // of a hash

	is     expiry.Mark // of the pair; of the type that the decision is for where there is none
	gets   expiry.Mark // with put
	types  types
	decide decision
	err    error
}

// types are those that a decision is for.
type types uint8

const (
	ofStrings types = 1 << expiry.String
	ofHashes  types = 1 << expiry.Hash
	ofSets    types = 1 << expiry.SortedSet
	ofAll           = ofStrings | ofHashes | ofSets
)

// modify is the operation that a decision on pairs of some types makes.
func modify(on types, decide decision) operation {
	return func(s *Session, op *rpcv1.Operation, dst []byte, o *rpcv1.Outcome) ([]byte, error) {
		m := &s.modification
		m.op, m.o, m.dst, m.decide, m.types, m.err = op, o, dst, decide, on, nil
		err := s.modify(op.Key)
		if err == nil {
			err = m.err
		}
		dst = m.dst
		m.op, m.o, m.dst = nil, nil, nil
		return dst, err
	}
}

// changeMark implements expiry.Change. The pair keeps its mark, unless the decision says otherwise.
func (m *modification) changeMark(old []byte, found bool, is expiry.Mark) ([]byte, expiry.Mark, index.Action) {
	switch {
	case found:
	case m.types == ofHashes:
		is.Type = expiry.Hash
	case m.types == ofSets:
		is.Type = expiry.SortedSet
	}
	m.is, m.gets = is, is
	value, action := m.change(old, found)
	return value, m.gets, action
}

// change implements index.Change.
func (m *modification) change(old []byte, found bool) ([]byte, index.Action) {
	m.o.Value, m.o.Number, m.o.Found = nil, 0, false
	if m.types&(1<<m.is.Type) == 0 {
		m.err = expiry.ErrType
		return nil, index.Keep
	}
	var action index.Action
	if action, m.err = m.decide(m, old, found); m.err != nil {
		action = index.Keep
	}
	return m.put, action
}

// answer makes the outcome's value a copy of v.
func (m *modification) answer(v []byte) {
	m.dst = append(m.dst[:0], v...)
	m.o.Value = m.dst
}

// checkSize returns an error for a value of more bytes than the index takes.
func (m *modification) checkSize(bytes int) error {
	if bytes > m.most {
		return valueTooLong(rpcv1.Outcome_WRONG_VALUE, uint64(bytes), m.most)
	}
	return nil
}

func valueTooLong(code rpcv1.Outcome_Code, bytes uint64, most int) error {
	return &Failure{Code: code, Message: fmt.Sprintf("value is %d bytes; this index takes at most %d", bytes, most)}
}

// The errors of Redis where a value is not one for the operation.
var (
	errNotInteger error = &Failure{Code: rpcv1.Outcome_WRONG_VALUE, Message: "value is not an integer or out of range"}
	errOverflow   error = &Failure{Code: rpcv1.Outcome_WRONG_VALUE, Message: "increment or decrement would overflow"}
	errNotFloat   error = &Failure{Code: rpcv1.Outcome_WRONG_VALUE, Message: "value is not a valid float"}
	errInfinite   error = &Failure{Code: rpcv1.Outcome_WRONG_VALUE, Message: "increment would produce NaN or Infinity"}

	errOffset error = &Failure{Code: rpcv1.Outcome_WRONG_VALUE, Message: "offset is out of range"}

	errMismatch error = &Failure{Code: rpcv1.Outcome_MISMATCH}
)

func increment(m *modification, old []byte, found bool) (index.Action, error) {
	n := int64(0)
	if found {
		var ok bool
		if n, ok = ParseInteger(old); !ok {
			return index.Keep, errNotInteger
		}
	}
	sum, ok := addIntegers(n, m.op.Number)
	if !ok {
		return index.Keep, errOverflow
	}
	m.o.Number = sum
	m.put = strconv.AppendInt(m.put[:0], sum, 10)
	return index.Put, m.checkSize(len(m.put))
}

func incrementFloat(m *modification, old []byte, found bool) (index.Action, error) {
	if !found {
		old = zero
	}
	var err error
	if m.put, err = addFloats(m.put[:0], old, m.op.Value); err != nil {
		return index.Keep, err
	}
	m.answer(m.put)
	return index.Put, m.checkSize(len(m.put))
}

var zero = []byte("0")

func appendValue(m *modification, old []byte, _ bool) (index.Action, error) {
	n := len(old) + len(m.op.Value)
	if err := m.checkSize(n); err != nil {
		return index.Keep, err
	}
	m.o.Number = int64(n)
	m.put = append(append(m.put[:0], old...), m.op.Value...)
	return index.Put, nil
}

func setRange(m *modification, old []byte, _ bool) (index.Action, error) {
	if m.op.Number < 0 {
		return index.Keep, errOffset
	}
	if m.o.Number = int64(len(old)); len(m.op.Value) == 0 {
		return index.Keep, nil
	}
	end := uint64(m.op.Number) + uint64(len(m.op.Value))
	if end > uint64(m.most) {
		return index.Keep, valueTooLong(rpcv1.Outcome_WRONG_VALUE, end, m.most)
	}
	m.put = append(m.put[:0], old...)
	for uint64(len(m.put)) < end {
		m.put = append(m.put, 0)
	}
	copy(m.put[m.op.Number:], m.op.Value)
	m.o.Number = int64(len(m.put))
	return index.Put, nil
}

func exchange(m *modification, old []byte, found bool) (index.Action, error) {
	m.answerOld(old, found)
	m.put, m.gets = append(m.put[:0], m.op.Value...), expiry.Mark{}
	return index.Put, m.holds(old, found)
}

func removeValue(m *modification, old []byte, found bool) (index.Action, error) {
	m.answerOld(old, found)
	if !found {
		return index.Keep, index.ErrNotFound
	}
	return index.Remove, m.holds(old, found)
}

// answerOld answers what the key had.
func (m *modification) answerOld(old []byte, found bool) {
	if m.o.Found = found; found {
		m.answer(old)
	}
}

// holds returns why the operation's condition does not hold; nil if it does.
func (m *modification) holds(old []byte, found bool) error {
	switch m.op.Condition {
	case rpcv1.Operation_ABSENT:
		if found {
			return index.ErrExists
		}
	case rpcv1.Operation_PRESENT:
		if !found {
			return index.ErrNotFound
		}
	case rpcv1.Operation_EQUAL:
		switch {
		case !found:
			return index.ErrNotFound
		case !bytes.Equal(old, m.op.Operand):
			return errMismatch
		}
	case rpcv1.Operation_DIFFERENT:
		if found && bytes.Equal(old, m.op.Operand) {
			return errMismatch
		}
	}
	return nil
}
