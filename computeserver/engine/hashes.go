package engine

import (
	"fmt"
	"slices"
	"strconv"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/computeserver/hash"
	"github.com/dmindex/dmindex/pkg/index"
)

// Operations on hashes. A hash is one value of the index, so each of them is one step on its pair,
// as those on strings are: a lookup, or a decision (index.Session.Modify).

// The errors of Redis where a field's value is not one for the operation.
var (
	errFieldNotInteger error = &Failure{Code: rpcv1.Outcome_WRONG_VALUE, Message: "hash value is not an integer"}
	errFieldNotFloat   error = &Failure{Code: rpcv1.Outcome_WRONG_VALUE, Message: "hash value is not a float"}
)

// readHash is HASH_READ.
func readHash(s *Session, op *rpcv1.Operation, dst []byte, o *rpcv1.Outcome) ([]byte, error) {
	h, is, err := s.lookupMark(op.Key, dst)
	if err == nil && is.Type != expiry.Hash {
		err = expiry.ErrType
	}
	if err == nil {
		o.Value = h
	}
	return h, err
}

// getField is HASH_GET.
func getField(s *Session, op *rpcv1.Operation, dst []byte, o *rpcv1.Outcome) ([]byte, error) {
	h, err := readHash(s, op, dst, o)
	if err != nil {
		return h, err
	}
	value, _, ok := hash.Find(h, op.Operand)
	if o.Value = value; !ok {
		err = index.ErrNotFound
	}
	return h, err
}

// fitsHash is fits of the hash that the key would get.
func (m *modification) fitsHash() error {
	if len(m.put) > m.most {
		return &Failure{Code: rpcv1.Outcome_WRONG_VALUE, Message: fmt.Sprintf("the hash would be %d bytes with all its fields; this index takes at most %d", len(m.put), m.most)}
	}
	return nil
}

// setField gives a field of m.put a value. It returns whether the field was there.
func (m *modification) setField(field, value []byte) (was bool) {
	_, at, was := hash.Find(m.put, field)
	if !was {
		m.put = hash.AppendItem(hash.AppendItem(m.put, field), value)
		return false
	}
	m.item = hash.AppendItem(m.item[:0], value)
	m.put = slices.Replace(m.put, at.Value, at.End, m.item...)
	return true
}

func setFields(m *modification, old []byte, found bool) (index.Action, error) {
	m.put = append(m.put[:0], old...)
	action := index.Keep
	for rest := m.op.Value; len(rest) > 0; {
		field, value, next, ok := hash.NextPair(rest)
		if !ok {
			return index.Keep, hash.ErrForm
		}
		if rest = next; m.op.Condition == rpcv1.Operation_ABSENT {
			if _, _, there := hash.Find(m.put, field); there {
				continue
			}
		}
		if action = index.Put; !m.setField(field, value) {
			m.o.Number++
		}
	}
	return action, m.fitsHash()
}

func deleteFields(m *modification, old []byte, found bool) (index.Action, error) {
	m.put = append(m.put[:0], old...)
	for rest := m.op.Value; len(rest) > 0; {
		field, next, ok := hash.Next(rest)
		if !ok {
			return index.Keep, hash.ErrForm
		}
		rest = next
		if _, at, there := hash.Find(m.put, field); there {
			m.put = slices.Delete(m.put, at.Begin, at.End)
			m.o.Number++
		}
	}
	switch {
	case m.o.Number == 0:
		return index.Keep, nil
	case len(m.put) == 0:
		return index.Remove, nil
	}
	return index.Put, nil
}

func incrementField(m *modification, old []byte, found bool) (index.Action, error) {
	n := int64(0)
	if value, _, ok := hash.Find(old, m.op.Operand); ok {
		if n, ok = ParseInteger(value); !ok {
			return index.Keep, errFieldNotInteger
		}
	}
	sum, ok := addIntegers(n, m.op.Number)
	if !ok {
		return index.Keep, errOverflow
	}
	var digits [20]byte
	m.o.Number = sum
	m.put = append(m.put[:0], old...)
	m.setField(m.op.Operand, strconv.AppendInt(digits[:0], sum, 10))
	return index.Put, m.fitsHash()
}

func incrementFieldFloat(m *modification, old []byte, found bool) (index.Action, error) {
	value, _, there := hash.Find(old, m.op.Operand)
	if !there {
		value = zero
	} else if _, ok := IsFloat(value); !ok {
		return index.Keep, errFieldNotFloat
	}
	var err error
	if m.dst, err = addFloats(m.dst[:0], value, m.op.Value); err != nil {
		return index.Keep, err
	}
	m.o.Value = m.dst
	m.put = append(m.put[:0], old...)
	m.setField(m.op.Operand, m.dst)
	return index.Put, m.fitsHash()
}
