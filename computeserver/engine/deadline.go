package engine

import (
	"math"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/pkg/index"
)

// Decisions of the operations that know when pairs expire. In an index whose pairs do not, the
// deadline is always 0, and no operation asks for another one (Engine.Check).

// deadlineOf returns the deadline that an operation gives to its pair, which has the deadline has.
func deadlineOf(op *rpcv1.Operation, has int64, clock func() int64) int64 {
	switch op.Expiry {
	case rpcv1.Operation_NEVER:
		return 0
	case rpcv1.Operation_AFTER:
		now := clock()
		if op.Number > math.MaxInt64-now {
			return math.MaxInt64
		}
		return pastDeadline(now + op.Number)
	case rpcv1.Operation_AT:
		return pastDeadline(op.Number)
	}
	return has
}

// markOf is the mark that a storing operation gives to its pair, which has the deadline has.
func markOf(op *rpcv1.Operation, has int64, clock func() int64) expiry.Mark {
	gets := expiry.Mark{Deadline: deadlineOf(op, has, clock)}
	if op.Kind.Traits().Hash {
		gets.Type = expiry.Hash
	}
	return gets
}

func (m *modification) deadlineOf() int64 { return deadlineOf(m.op, m.is.Deadline, m.now) }

// pastDeadline is a deadline, which is not 0: that would be none.
func pastDeadline(deadline int64) int64 { return max(deadline, 1) }

// store stores a string, or a hash, over whatever the key has.
func store(m *modification, old []byte, found bool) (index.Action, error) {
	m.put = append(m.put[:0], m.op.Value...)
	m.gets = markOf(m.op, m.is.Deadline, m.now)
	return index.Put, m.holds(old, found)
}

func swap(m *modification, old []byte, found bool) (index.Action, error) {
	m.answerOld(old, found)
	return store(m, old, found)
}

func expire(m *modification, old []byte, found bool) (index.Action, error) {
	if !found {
		return index.Keep, index.ErrNotFound
	}
	m.gets.Deadline = m.deadlineOf()
	if !m.allows() {
		return index.Keep, errMismatch
	}
	return m.keepValue(old), nil
}

func touch(m *modification, old []byte, found bool) (index.Action, error) {
	if !found {
		return index.Keep, index.ErrNotFound
	}
	m.answer(old)
	m.gets.Deadline = m.deadlineOf()
	return m.keepValue(old), nil
}

// keepValue stores the pair's value again if its mark is another one.
func (m *modification) keepValue(old []byte) index.Action {
	if m.gets == m.is {
		return index.Keep
	}
	m.put = append(m.put[:0], old...)
	return index.Put
}

// allows reports whether the operation's condition on the deadline holds.
func (m *modification) allows() bool {
	is, to := comparable(m.is.Deadline), comparable(m.gets.Deadline)
	switch m.op.Condition {
	case rpcv1.Operation_ENDLESS:
		return m.is.Deadline == 0
	case rpcv1.Operation_EXPIRES:
		return m.is.Deadline != 0
	case rpcv1.Operation_LATER_THAN:
		return m.is.Deadline != 0 && to > is
	case rpcv1.Operation_EARLIER_THAN:
		return m.is.Deadline == 0 || to < is
	case rpcv1.Operation_EXPIRES_LATER:
		return m.is.Deadline != 0 && to < is
	}
	return true
}

// comparable is a deadline, as a time: none is the last one of all.
func comparable(deadline int64) int64 {
	if deadline == 0 {
		return math.MaxInt64
	}
	return deadline
}
