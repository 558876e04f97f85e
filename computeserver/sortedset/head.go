package sortedset

import (
	"bytes"
	"encoding/binary"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

var errForm = failure(rpcv1.Outcome_UNSUPPORTED, "the sorted set is stored in a form that this version does not know; use the version that wrote it")

func (s *Sets) doOne(op *rpcv1.Operation) *rpcv1.Outcome {
	return s.Index.Do([]*rpcv1.Operation{op})[0]
}

// draw is a random number or stamp.
func (s *Sets) draw() (of [6]byte) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], s.Index.Random())
	copy(of[:], b[:])
	return of
}

// headOf reads an outcome of SET_HEAD; false if there is no set.
func (s *Sets) headOf(o *rpcv1.Outcome) (h head, ok bool, err error) {
	switch o.Code {
	case rpcv1.Outcome_NOT_FOUND:
		return h, false, nil
	case rpcv1.Outcome_OK:
		if h, ok = parseHead(o.Value); !ok {
			return h, false, errForm
		}
		return h, true, nil
	}
	return h, false, &Failure{o}
}

// head reads the head; false if there is none.
func (s *Sets) head(key []byte) (head, bool, error) {
	return s.headOf(s.doOne(&rpcv1.Operation{Kind: rpcv1.Operation_SET_HEAD, Key: key}))
}

// swap replaces one head by another; nil is none. It is false if the key has another one.
func (s *Sets) swap(key []byte, from, to *head) (bool, error) {
	op := &rpcv1.Operation{Kind: rpcv1.Operation_SET_SWAP_HEAD, Key: key}
	if from != nil {
		op.Operand = from.marshal()
	}
	if to != nil {
		op.Value = to.marshal()
	}
	switch o := s.doOne(op); o.Code {
	case rpcv1.Outcome_OK:
		return true, nil
	case rpcv1.Outcome_MISMATCH:
		return false, nil
	default:
		return false, &Failure{o}
	}
}

// getOrMake returns the head of a set where members may be written, and makes the set if there is
// none.
func (s *Sets) getOrMake(key []byte) (h head, err error) {
	for try := range tries {
		if try > 0 {
			s.Index.Pause(try)
		}
		h, there, err := s.head(key)
		switch {
		case err != nil:
			return h, err
		case !there:
			h = head{state: isNew, number: s.draw()}
			done, err := s.swap(key, nil, &h)
			if err != nil {
				return h, err
			}
			if !done {
				continue
			}
		case h.state != isNew:
			return h, nil
		}
		next := h.withState(isMade)
		root := s.doOne(&rpcv1.Operation{Kind: rpcv1.Operation_INSERT, Key: h.number.root(), Value: key})
		if root.Code == rpcv1.Outcome_ALREADY_EXISTS {
			has := s.doOne(&rpcv1.Operation{Kind: rpcv1.Operation_LOOKUP, Key: h.number.root()})
			switch {
			case has.Code == rpcv1.Outcome_OK && bytes.Equal(has.Value, key): // others were earlier
			case has.Code == rpcv1.Outcome_OK: // of another set
				next = head{state: isNew, number: s.draw()}
			case has.Code == rpcv1.Outcome_NOT_FOUND: // the set is gone
				continue
			default:
				return h, &Failure{has}
			}
		} else if root.Code != rpcv1.Outcome_OK {
			return h, &Failure{root}
		}
		done, err := s.swap(key, &h, &next)
		if err != nil {
			return h, err
		}
		if done && next.state == isMade {
			return next, nil
		}
	}
	return h, errBusy
}

// isCurrent reports whether the number that h has read is still the set's, after a new member was
// written, and stays so: a head that is closing is made again.
func (s *Sets) isCurrent(key []byte, n number, o *rpcv1.Outcome) (bool, error) {
	for try := range tries {
		if o.Code == rpcv1.Outcome_WRONG_TYPE {
			return false, nil
		}
		h, there, err := s.headOf(o)
		if err != nil || !there || h.number != n {
			return false, err
		}
		if h.state == isMade {
			return true, nil
		}
		next := h.withState(isMade)
		if done, err := s.swap(key, &h, &next); done || err != nil {
			return done, err
		}
		s.Index.Pause(try + 1)
		o = s.doOne(&rpcv1.Operation{Kind: rpcv1.Operation_SET_HEAD, Key: key})
	}
	return false, errBusy
}

// isEmpty reports whether there is no item under a number.
func (s *Sets) isEmpty(n number) (bool, error) {
	empty := true
	begin := n.kindPrefix(isItem)
	err := s.Index.Scan(begin, prefixEnd(begin), 1, false, func(_, _ []byte) bool {
		empty = false
		return false
	})
	return empty, err
}

// closeEmpty removes the head of a set that has no member.
func (s *Sets) closeEmpty(key []byte, n number) error {
	if empty, err := s.isEmpty(n); !empty || err != nil {
		return err
	}
	h, there, err := s.head(key)
	if err != nil || !there || h.number != n {
		return err
	}
	if h.state == isNew { // its root may not be there
		_, err = s.swap(key, &h, nil)
		return err
	}
	closing := head{state: isClosing, number: n, token: s.draw()}
	if done, err := s.swap(key, &h, &closing); !done || err != nil {
		return err // somebody writes a member, or closes
	}
	empty, err := s.isEmpty(n)
	if err != nil {
		return err
	}
	if empty {
		_, err = s.swap(key, &closing, nil)
		return err
	}
	open := h.withState(isMade)
	_, err = s.swap(key, &closing, &open)
	return err
}
