package engine

import (
	"bytes"
	"errors"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/computeserver/sortedset"
	"github.com/dmindex/dmindex/pkg/index"
)

// SET_MEMBER, a change of a member of a sorted set in one step: a group of the index
// (index.Grouper) on the item, the entries and, for a new member, the head. Which pairs these are
// follows from the item. So the item is looked up first, and the group is made only if it is still
// the same. The operation runs where the item belongs. Where this server does not serve the other
// pairs as well, it does nothing.

// memberTries bounds how often a member is looked at that others change all the time. Then it is
// changed in several steps.
const memberTries = 4

// memberStep is the SET_MEMBER under way in a session.
type memberStep struct {
	change  sortedset.Change
	steps   sortedset.Steps
	was     []byte // the item, as it was looked up
	stored  []byte // the same as the index has it
	item    []byte // what it gets, and
	entry   []byte // what the new entry gets, as the index has these
	members []index.Member
}

// errApart is the error of a change that has to be made in several steps.
var errApart error = &Failure{Code: rpcv1.Outcome_UNSUPPORTED, Message: "the pairs of the member are not changed in one step, and nothing was done"}

// errMoved is returned by the change of a group whose pairs are not what they have to be.
var errMoved = errors.New("a pair has changed")

// changeMember is SET_MEMBER.
func changeMember(s *Session, op *rpcv1.Operation, dst []byte, o *rpcv1.Outcome) ([]byte, error) {
	by, ok := s.Session.(index.Grouper)
	if !ok || s.expiring == nil {
		return dst, errApart
	}
	if s.member == nil {
		s.member = &memberStep{}
	}
	m := s.member
	defer func() { m.change, m.steps.Set, m.steps.Head = sortedset.Change{}, nil, nil; clear(m.members) }()
	if !m.change.Parse(op) {
		return dst, &Failure{Code: rpcv1.Outcome_INVALID, Message: "no change of a member, and nothing was done"}
	}
	for range memberTries {
		found := true
		was, err := s.Lookup(op.Key, m.was[:0])
		switch {
		case errors.Is(err, index.ErrNotFound):
			was, found = was[:0], false
		case err != nil:
			return dst, err
		}
		m.was = was
		switch m.change.Plan(was, found, &m.steps) {
		case sortedset.Other:
			return dst, errMismatch
		case sortedset.Nothing:
			if len(op.Value) == 0 {
				return dst, index.ErrNotFound
			}
		case sortedset.Do:
			switch err := m.make(s, by, op.Key, found); {
			case errors.Is(err, errMoved):
				continue
			case err != nil:
				return dst, err
			}
		}
		if o.Found = found; found {
			dst = append(dst, was...)
			o.Value = dst
		}
		return dst, nil
	}
	return dst, errApart
}

// make makes the steps of a member whose item was looked up.
func (m *memberStep) make(s *Session, by index.Grouper, item []byte, found bool) error {
	members := append(m.members[:0], index.Member{Key: item})
	for _, key := range [...][]byte{m.steps.Entry, m.steps.Former, m.steps.Set} {
		if len(key) > 0 {
			members = append(members, index.Member{Key: key})
		}
	}
	m.members = members
	for i := range members[1:] {
		if !s.Serves(members[1+i].Key) {
			return errApart
		}
	}
	m.stored = expiry.AppendStored(m.stored[:0], m.was, expiry.Mark{})
	m.item = expiry.AppendStored(m.item[:0], m.steps.Item, expiry.Mark{})
	m.entry = expiry.AppendStored(m.entry[:0], sortedset.Mark, expiry.Mark{})
	err := by.Group(members, func() error {
		if is := &members[0]; is.Found != found || found && !bytes.Equal(is.Old, m.stored) {
			return errMoved
		}
		put(&members[0], m.item, len(m.steps.Item) > 0)
		at := 1
		if len(m.steps.Entry) > 0 {
			put(&members[at], m.entry, true)
			at++
		}
		if len(m.steps.Former) > 0 {
			put(&members[at], nil, false)
			at++
		}
		if len(m.steps.Set) > 0 && !m.isHead(&members[at], s.modification.now()) {
			return errMismatch
		}
		return nil
	})
	if errors.Is(err, index.ErrGroupTooLarge) || errors.Is(err, index.ErrNotOwner) {
		return errApart
	}
	return err
}

func put(x *index.Member, value []byte, there bool) {
	if x.Value, x.Action = value, index.Put; !there {
		x.Value, x.Action = nil, index.Remove
	}
}

// isHead reports whether a pair is the head that the steps ask for.
func (m *memberStep) isHead(x *index.Member, now int64) bool {
	if !x.Found {
		return false
	}
	value, is, err := expiry.Split(x.Old)
	return err == nil && is.Type == expiry.SortedSet && !expiry.Passed(is.Deadline, now) && bytes.Equal(value, m.steps.Head)
}
