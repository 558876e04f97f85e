package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/partition"
)

// ScanRange is what a scan asks for.
type ScanRange struct {
	Start, End []byte // inclusive, exclusive; an empty end is the upper end of the key space
	Limit      uint64 // pairs; 0 = all
	Reverse    bool   // from end downwards
	KeysOnly   bool
	Inner      bool // what sorted sets consist of, too
	// Wait is how long the scan waits for a session, or for keys that nobody serves, before it ends
	// with an error. 0 = the limit of each request.
	Wait time.Duration
}

// Bounds of one piece of a scan: a session is held only for as long.
const (
	ScanPiecePairs = 512
	scanPieceBytes = 256 << 10
	// Pairs that have expired, which the session removes one after the other.
	scanPiecePassed = 64
)

// scan is one scan under way. It walks over the owners in key order and remembers where it is, so
// that whatever happens to a server it goes on after the last key that it delivered.
type scan struct {
	ctx       context.Context // the caller's
	c         *Engine
	rest      ScanRange // what is still to be delivered
	forwarded bool
	sweeps    bool // nobody asked for it: it is no load
	visit     Visit
	// called when no session is held, also in the middle of a piece of another server
	between func() error
	// copy of the near end of the piece under way, since rest moves on meanwhile
	near      []byte
	read      pairs // of the piece under way, until they may be delivered
	passed    []int // those of read that were found expired
	again     []byte
	more      uint64 // pairs for which a piece looks, since the last one had some that were expired
	delivered uint64
	ended     bool
	broken    error // of between, or of ctx
	asked     bool  // another server, which may still hold what it was sent
}

// Visit is told of a pair, and of its mark. The slices are valid only during the call, and it must
// not block. The scan ends if it returns false.
type Visit func(key, value []byte, is expiry.Mark) bool

// Scan calls visit with pairs in order until it returns false. between is called after every piece,
// and after every message of another server, and may block. A forwarded scan ends with NOT_OWNER
// where this server's keys end. When ctx is done, the scan ends with its error, also while it waits
// for another server.
func (c *Engine) Scan(ctx context.Context, r ScanRange, forwarded bool, visit Visit, between func() error) error {
	if err := errors.Join(c.checkBound(r.Start), c.checkBound(r.End)); err != nil {
		return err
	}
	r.Wait = cmp.Or(r.Wait, c.Limit)
	s := c.newScan()
	defer s.free()
	start, end := append(s.rest.Start[:0], r.Start...), append(s.rest.End[:0], r.End...)
	s.ctx, s.rest, s.forwarded, s.visit, s.between = ctx, r, forwarded, visit, between
	s.rest.Start, s.rest.End = start, end
	deadline, pause := env.Deadline(c.Env, r.Wait), retryFirst
	for s.skipInner(); !s.ended && !s.empty(); s.skipInner() {
		if err := c.Blocked(); err != nil {
			return err
		}
		if c.ending() {
			return errCut
		}
		before := s.delivered
		m := c.View.Route()
		err := s.nextPiece(m)
		if s.flush() != nil {
			return s.broken
		}
		if err == nil || s.delivered > before {
			deadline, pause = env.Deadline(c.Env, r.Wait), retryFirst
		}
		if err == nil {
			continue
		}
		left := env.Remaining(c.Env, deadline)
		var f *Failure
		waits := errors.As(err, &f) && f.waits
		code := OutcomeOf(err).Code
		if forwarded && !waits || left == 0 || code != rpcv1.Outcome_NOT_OWNER && code != rpcv1.Outcome_UNAVAILABLE {
			return err
		}
		c.View.AwaitOther(m, min(pause, left))
		pause = min(2*pause, retrySlowest)
	}
	return nil
}

// errCut ends a scan that outlasts a drain.
var errCut error = &Failure{Code: rpcv1.Outcome_UNAVAILABLE, Message: "this server is shutting down; ask another one"}

// flush calls between, unless that has failed or the caller left.
func (s *scan) flush() error {
	if s.broken == nil {
		s.broken = s.ctx.Err()
	}
	if s.broken == nil {
		s.broken = s.between()
	}
	if s.broken == nil && s.c.ending() {
		s.broken = errCut
	}
	return s.broken
}

// empty reports whether nothing is left between the ends.
func (s *scan) empty() bool {
	return len(s.rest.End) > 0 && bytes.Compare(s.rest.Start, s.rest.End) >= 0
}

// nextPiece delivers the next pairs, from their server by m.
func (s *scan) nextPiece(m *partition.Map) error {
	if s.c.View.Any {
		return s.scanLocal(m, s.fixNearEnd(s.outside(s.rest)))
	}
	if m == nil {
		return s.c.unowned()
	}
	span := spanAt(m, s.rest)
	part := s.fixNearEnd(s.outside(clip(s.rest, span)))
	switch {
	case span.Owner == s.c.Self:
		return s.scanLocal(m, part)
	case s.forwarded:
		return &Failure{Code: rpcv1.Outcome_NOT_OWNER, Message: s.c.At(m, span.Start, "this server is not in charge of them")}
	}
	to, _ := m.Server(span.Owner)
	s.c.Count.Forwarded.Add(1)
	full := false
	s.asked = true
	err := s.c.Peers.Scan(s.ctx, to, part, s.c.Limit, func(key, value []byte, is expiry.Mark) bool {
		full = !s.deliver(key, value, is)
		return !full
	}, s.flush)
	switch {
	case err != nil:
		o := OutcomeOf(err)
		if s.broken == nil && s.ctx.Err() == nil { // else it is no fault of the owner
			near := s.rest.Start
			if s.rest.Reverse {
				near = s.rest.End
			}
			s.c.failed(span.Owner, near, s.rest.Reverse, o.Code)
		}
		return &Failure{Code: o.Code, Message: s.c.At(m, span.Start, o.Message)}
	case !full:
		s.finished(part)
	}
	return nil
}

// fixNearEnd is part with a near end that stays as it is while pairs are delivered.
func (s *scan) fixNearEnd(part ScanRange) ScanRange {
	if part.Reverse {
		s.near = append(s.near[:0], part.End...)
		part.End = s.near
	} else {
		s.near = append(s.near[:0], part.Start...)
		part.Start = s.near
	}
	return part
}

// scanLocal delivers pairs of part from a session of this server, as many as fit one piece. It
// delivers them after the session was returned, because only then it is known that they may be
// answered.
func (s *scan) scanLocal(m *partition.Map, part ScanRange) error {
	session, err := s.c.Sessions.Borrow(part.Wait, 0)
	if err != nil {
		return err
	}
	if session.by != nil {
		span, ok := session.servedSpan(s.near, part.Reverse)
		if !ok {
			_ = s.c.Sessions.Repay(session, nil) // nothing was read
			return s.c.notYet(m, part.Start)
		}
		part = clip(part, span)
	}
	limit := uint64(ScanPiecePairs)
	if part.Limit > 0 {
		limit = min(limit, part.Limit) + s.more
	}
	size, most, outside, full := 0, cmp.Or(s.c.ScanPiece, scanPieceBytes), false, false
	s.read.clear()
	s.passed = s.passed[:0]
	err = session.scan(s.near, int(limit), part.Reverse, s.sweeps, func(key, value []byte, is expiry.Mark, passed bool) bool {
		if outside = beyond(part, key); outside {
			return false
		}
		size += len(key) + len(value)
		if s.leaves(is) {
			value = nil
		}
		if passed {
			s.passed = append(s.passed, s.read.len())
		}
		s.read.expect(int(limit), len(key)+len(value))
		s.read.add(key, value, is)
		live := uint64(s.read.len() - len(s.passed))
		full = size >= most || live == part.Limit && live > 0 || len(s.passed) == scanPiecePassed
		return !full
	})
	cut := false
	if cut, err = s.expire(session, err); cut {
		outside, full = false, true
	}
	if why := s.c.Sessions.Repay(session, err); why != nil {
		s.read.clear()
		if err == nil {
			err = notAnswered(why)
		}
	}
	for i, passed := 0, s.passed; i < s.read.len(); i++ {
		key, value, is := s.read.pair(i)
		if len(passed) > 0 && passed[0] == i {
			passed = passed[1:]
			continue
		}
		if !s.show(key, value, is) {
			return nil
		}
	}
	if n := s.read.len(); n > 0 { // once: the near end of the piece stays as it is
		last, _, _ := s.read.pair(n - 1)
		if s.moveNearEnd(last); s.ended {
			return nil
		}
	}
	if err != nil {
		if m != nil {
			o := OutcomeOf(err)
			return &Failure{Code: o.Code, Message: s.c.At(m, part.Start, o.Message)}
		}
		return err
	}
	if outside || s.read.len() < int(limit) && !full {
		s.finished(part)
	}
	return nil
}

// expire removes the pairs of a piece that have expired: it must not be told before that they are
// not there. One that another server has written meanwhile, or whose deadline was put off, is
// there: the piece is cut off before it, and the next one begins with it. So is a piece of which a
// pair cannot be removed, because of err, the scan's own error, or of another one, and a piece
// whose session a handover waits for.
func (s *scan) expire(session *Session, err error) (cut bool, _ error) {
	s.more = uint64(len(s.passed))
	for n, i := range s.passed {
		hurries := n > 0 && session.Hurries()
		if err == nil && !hurries {
			key, _, _ := s.read.pair(i)
			s.again, err = session.expire(key, s.again[:0])
		}
		if hurries || !errors.Is(err, index.ErrNotFound) {
			s.passed = s.passed[:n]
			s.read.truncate(i)
			return true, err
		}
		err = nil
	}
	return false, err
}

// beyond reports whether key lies past the far end of r.
func beyond(r ScanRange, key []byte) bool {
	if r.Reverse {
		return bytes.Compare(key, r.Start) < 0
	}
	return len(r.End) > 0 && bytes.Compare(key, r.End) >= 0
}

// leaves reports whether the value of a pair is not wanted. The sweeper looks at heads of sorted
// sets.
func (s *scan) leaves(is expiry.Mark) bool {
	return s.rest.KeysOnly && !(s.sweeps && is.Type == expiry.SortedSet)
}

// deliver passes one pair on, and moves the near end past it.
func (s *scan) deliver(key, value []byte, is expiry.Mark) bool {
	if s.leaves(is) {
		value = nil
	}
	s.moveNearEnd(key)
	return s.show(key, value, is)
}

// show passes one pair on.
func (s *scan) show(key, value []byte, is expiry.Mark) bool {
	s.delivered++
	if s.rest.Limit > 0 {
		if s.rest.Limit--; s.rest.Limit == 0 {
			s.ended = true
		}
	}
	if !s.visit(key, value, is) {
		s.ended = true
	}
	return !s.ended
}

// moveNearEnd moves the near end past key.
func (s *scan) moveNearEnd(key []byte) {
	if s.rest.Reverse {
		s.rest.End = append(s.rest.End[:0], key...)
		// nothing is below the empty key, and an empty end would mean the upper one
		s.ended = s.ended || len(key) == 0
	} else {
		next, ok := s.c.Successor(s.rest.Start[:0], key)
		s.rest.Start, s.ended = next, s.ended || !ok
	}
}

// finished records that all of part was delivered.
func (s *scan) finished(part ScanRange) {
	if !part.Reverse {
		s.ended = s.ended || len(part.End) == 0
		s.rest.Start = append(s.rest.Start[:0], part.End...)
		return
	}
	s.ended = s.ended || len(part.Start) == 0
	s.rest.End = append(s.rest.End[:0], part.Start...)
}

// Successor appends to dst the least key above key; false if key is the greatest.
func (c *Engine) Successor(dst, key []byte) ([]byte, bool) {
	if c.Index.KeyType == config.KeyBytes && len(key) < c.Index.MaxKeyBytes {
		return append(append(dst, key...), 0), true
	}
	dst = append(dst, key...)
	for i := len(dst) - 1; i >= 0; i-- {
		if dst[i]++; dst[i] != 0 {
			if c.Index.KeyType == config.KeyBytes {
				dst = dst[:i+1]
			}
			return dst, true
		}
	}
	return dst, false
}

// spanAt returns the longest run of ranges of one owner that holds the near end of r.
func spanAt(m *partition.Map, r ScanRange) partition.Span {
	i := 0
	switch {
	case !r.Reverse:
		i = m.At(r.Start)
	case len(r.End) == 0:
		i = len(m.Ranges) - 1
	default:
		i = m.At(r.End)
		if bytes.Equal(m.Ranges[i].Start, r.End) {
			i-- // the first range starts at the empty key, so there is one below
		}
	}
	span := m.Span(i)
	for j := i + 1; j < len(m.Ranges) && m.Ranges[j].Owner == span.Owner; j++ {
		span.End = m.Span(j).End
	}
	for j := i - 1; j >= 0 && m.Ranges[j].Owner == span.Owner; j-- {
		span.Start = m.Ranges[j].Start
	}
	return span
}

// clip returns the part of r within span.
func clip(r ScanRange, span partition.Span) ScanRange {
	if bytes.Compare(r.Start, span.Start) < 0 {
		r.Start = span.Start
	}
	if len(span.End) > 0 && (len(r.End) == 0 || bytes.Compare(r.End, span.End) > 0) {
		r.End = span.End
	}
	return r
}
