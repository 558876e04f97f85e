package pool

import (
	"time"

	"github.com/dmindex/dmindex/pkg/env"
)

// SetLimit bounds every later operation (see Begin).
func (s *Session) SetLimit(limit time.Duration) { s.limit = limit }

// Limit is what SetLimit set.
func (s *Session) Limit() time.Duration { return s.limit }

// notStarted stands for the deadline of an operation that met no obstacle yet.
const notStarted time.Duration = -1

// remaining is how long the operation may still wait: not at all, once this client is given up.
func (s *Session) remaining() time.Duration {
	if s.pool.condemned.Load() != nil {
		return 0
	}
	if s.deadline == notStarted {
		s.deadline = env.Deadline(s.pool.env, s.limit)
	}
	return env.Remaining(s.pool.env, s.deadline)
}

// Remaining is how long the operation under way may still wait: not at all, once its limit is over
// or this client is given up.
func (s *Session) Remaining() time.Duration { return s.remaining() }

// Overdue is nil while the operation may go on: else ErrTimeout, or ErrFenced if this client is
// given up. Retry loops ask it.
func (s *Session) Overdue() error {
	if s.remaining() > 0 {
		return nil
	}
	if why := s.pool.condemned.Load(); why != nil {
		return *why
	}
	return ErrTimeout
}

// Late is Overdue, but does not start the operation's clock. An operation asks it when it has the
// lock of what it is to change: its lists may each have been late by less than the limit. It holds
// no lock in vain, and its caller, who may have given up, meets no change later.
func (s *Session) Late() error {
	if s.deadline == notStarted {
		return nil
	}
	return s.Overdue()
}

// boundLists bounds the lists that are about to be posted. READs have the session's limit: one that
// takes longer ends the session. A change that is given up would be in doubt, and without a lock's
// answer all of the client ends. So a list that changes something, or that a lock depends on, may
// take as long as the client's own, and the limit of one operation ends no other session.
//
// The clock of an operation that is bounded more tightly starts here: see Late.
func (s *Session) boundLists() {
	limit := s.limit
	if limit < DefaultLimit {
		if s.deadline == notStarted {
			s.deadline = env.Deadline(s.pool.env, limit)
		}
		if s.changing && !s.certain || s.locking || s.Holds() || s.present.slot != nil {
			limit = DefaultLimit
		}
	}
	if limit == s.waits {
		return
	}
	s.waits = limit
	for _, qp := range s.qps {
		if qp != nil {
			qp.SetLimit(limit)
		}
	}
}
