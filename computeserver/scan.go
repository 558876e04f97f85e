package computeserver

import (
	"bytes"
	"errors"
	"time"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
)

// scanRange is what a scan asks for.
type scanRange struct {
	start, end []byte // inclusive, exclusive; an empty end is the upper end of the key space
	limit      uint64 // pairs; 0 = all
	reverse    bool   // from end downwards
	keysOnly   bool
}

// Bounds of one piece of a scan: a session is held only for as long.
const (
	scanPiecePairs = 512
	scanPieceBytes = 256 << 10
)

// scan is one scan under way. It walks over the owners in key order and remembers where it is, so
// that whatever happens to a server it goes on after the last key that it delivered.
type scan struct {
	c         *core
	rest      scanRange // what is still to be delivered
	forwarded bool
	visit     func(key, value []byte) bool
	// called when no session is held, also in the midst of a piece of another server
	between func() error
	// copy of the near end of the piece under way, since rest moves on meanwhile
	near      []byte
	read      pairs // of the piece under way, until they may be delivered
	delivered uint64
	ended     bool
	broken    error // of between
}

// scan calls visit with pairs in order until it returns false. The slices are valid only during the
// call, which must not block; between is called after every piece, and after every message of
// another server, and may. A forwarded scan ends with NOT_OWNER where this server's keys end.
func (c *core) scan(r scanRange, forwarded bool, visit func(key, value []byte) bool, between func() error) error {
	if err := errors.Join(c.checkBound(r.start), c.checkBound(r.end)); err != nil {
		return err
	}
	s := &scan{c: c, rest: r, forwarded: forwarded, visit: visit, between: between}
	s.rest.start, s.rest.end = bytes.Clone(r.start), bytes.Clone(r.end)
	deadline, pause := env.Deadline(c.env, c.limit), retryFirst
	for !s.ended && !s.empty() {
		if err := c.blocked(); err != nil {
			return err
		}
		if c.ending() {
			return errCut
		}
		before := s.delivered
		m := c.own.route()
		err := s.piece(m)
		if s.flush() != nil {
			return s.broken
		}
		if err == nil || s.delivered > before {
			deadline, pause = env.Deadline(c.env, c.limit), retryFirst
		}
		if err == nil {
			continue
		}
		left := env.Remaining(c.env, deadline)
		var f *failure
		waits := errors.As(err, &f) && f.waits
		code := outcomeOf(err).Code
		if forwarded && !waits || left == 0 || code != rpcv1.Outcome_NOT_OWNER && code != rpcv1.Outcome_UNAVAILABLE {
			return err
		}
		c.own.awaitOther(m, min(pause, left))
		pause = min(2*pause, retrySlowest)
	}
	return nil
}

// errCut is how a scan ends that outlasts a drain.
var errCut error = &failure{code: rpcv1.Outcome_UNAVAILABLE, message: "this server is shutting down; ask another one"}

// flush calls between, unless that failed before.
func (s *scan) flush() error {
	if s.broken == nil {
		s.broken = s.between()
	}
	if s.broken == nil && s.c.ending() {
		s.broken = errCut
	}
	return s.broken
}

// empty says whether nothing is left between the ends.
func (s *scan) empty() bool {
	return len(s.rest.end) > 0 && bytes.Compare(s.rest.start, s.rest.end) >= 0
}

// piece delivers the next pairs, from the server in charge of them under m.
func (s *scan) piece(m *partition.Map) error {
	if s.c.own.any {
		return s.local(m, s.fixed(s.rest))
	}
	if m == nil {
		return s.c.unowned()
	}
	span := spanAt(m, s.rest)
	part := s.fixed(clip(s.rest, span))
	switch {
	case span.Owner == s.c.self:
		return s.local(m, part)
	case s.forwarded:
		return &failure{code: rpcv1.Outcome_NOT_OWNER, message: s.c.at(m, span.Start, "this server is not in charge of them")}
	}
	to, _ := m.Server(span.Owner)
	s.c.count.forwarded.Add(1)
	full := false
	err := s.c.peers.scan(to, part, s.c.limit, func(key, value []byte) bool {
		full = !s.deliver(key, value)
		return !full
	}, s.flush)
	switch {
	case err != nil:
		o := outcomeOf(err)
		if s.broken == nil {
			near := s.rest.start
			if s.rest.reverse {
				near = s.rest.end
			}
			s.c.failed(span.Owner, near, s.rest.reverse, o.Code)
		}
		return &failure{code: o.Code, message: s.c.at(m, span.Start, o.Message)}
	case !full:
		s.finished(part)
	}
	return nil
}

// fixed is part with a near end that stays as it is while pairs are delivered.
func (s *scan) fixed(part scanRange) scanRange {
	if part.reverse {
		s.near = append(s.near[:0], part.end...)
		part.end = s.near
	} else {
		s.near = append(s.near[:0], part.start...)
		part.start = s.near
	}
	return part
}

// local delivers pairs of part from a session of this server, as many as fit one piece: after the
// session came back, since only then it is known that they may be answered.
func (s *scan) local(m *partition.Map, part scanRange) error {
	session, err := s.c.eng.borrow(s.c.limit, 0)
	if err != nil {
		return err
	}
	if session.by != nil {
		span, ok := session.span(s.near, part.reverse)
		if !ok {
			_ = s.c.eng.repay(session, nil) // nothing was read
			return s.c.notYet(m, part.start)
		}
		part = clip(part, span)
	}
	limit := uint64(scanPiecePairs)
	if part.limit > 0 {
		limit = min(limit, part.limit)
	}
	size, most, outside := 0, or(s.c.scanPiece, scanPieceBytes), false
	s.read.clear()
	err = session.Scan(s.near, int(limit), part.reverse, func(key, value []byte) bool {
		if outside = beyond(part, key); outside {
			return false
		}
		size += len(key) + len(value)
		if s.rest.keysOnly {
			value = nil
		}
		s.read.add(key, value)
		return size < most
	})
	if lapsed := s.c.eng.repay(session, err); lapsed != nil {
		s.read.clear()
		if err == nil {
			err = notAnswered(lapsed)
		}
	}
	for i := range s.read.len() {
		if !s.deliver(s.read.pair(i)) {
			return nil
		}
	}
	if err != nil {
		if m != nil {
			o := outcomeOf(err)
			return &failure{code: o.Code, message: s.c.at(m, part.start, o.Message)}
		}
		return err
	}
	if outside || s.read.len() < int(limit) && size < most {
		s.finished(part)
	}
	return nil
}

// pairs are copies of keys and values, one after the other.
type pairs struct {
	data []byte
	ends []int // of each key and each value
}

func (p *pairs) clear()   { p.data, p.ends = p.data[:0], p.ends[:0] }
func (p *pairs) len() int { return len(p.ends) / 2 }

func (p *pairs) add(key, value []byte) {
	p.data = append(p.data, key...)
	p.ends = append(p.ends, len(p.data))
	p.data = append(p.data, value...)
	p.ends = append(p.ends, len(p.data))
}

func (p *pairs) pair(i int) (key, value []byte) {
	begin := 0
	if i > 0 {
		begin = p.ends[2*i-1]
	}
	middle, end := p.ends[2*i], p.ends[2*i+1]
	return p.data[begin:middle], p.data[middle:end]
}

// beyond says whether key lies past the far end of r.
func beyond(r scanRange, key []byte) bool {
	if r.reverse {
		return bytes.Compare(key, r.start) < 0
	}
	return len(r.end) > 0 && bytes.Compare(key, r.end) >= 0
}

// deliver hands one pair on and moves the near end past it.
func (s *scan) deliver(key, value []byte) bool {
	if s.rest.keysOnly {
		value = nil
	}
	s.delivered++
	if s.rest.limit > 0 {
		if s.rest.limit--; s.rest.limit == 0 {
			s.ended = true
		}
	}
	if s.rest.reverse {
		s.rest.end = append(s.rest.end[:0], key...)
		// nothing is below the empty key, and an empty end would mean the upper one
		s.ended = s.ended || len(key) == 0
	} else {
		next, ok := s.c.successor(s.rest.start[:0], key)
		s.rest.start, s.ended = next, s.ended || !ok
	}
	if !s.visit(key, value) {
		s.ended = true
	}
	return !s.ended
}

// finished notes that all of part was delivered.
func (s *scan) finished(part scanRange) {
	if !part.reverse {
		s.ended = s.ended || len(part.end) == 0
		s.rest.start = append(s.rest.start[:0], part.end...)
		return
	}
	s.ended = s.ended || len(part.start) == 0
	s.rest.end = append(s.rest.end[:0], part.start...)
}

// successor appends to dst the least possible key above key; false if key is the greatest.
func (c *core) successor(dst, key []byte) ([]byte, bool) {
	if c.index.KeyType == config.KeyBytes && len(key) < c.index.MaxKeyBytes {
		return append(append(dst, key...), 0), true
	}
	dst = append(dst, key...)
	for i := len(dst) - 1; i >= 0; i-- {
		if dst[i]++; dst[i] != 0 {
			if c.index.KeyType == config.KeyBytes {
				dst = dst[:i+1]
			}
			return dst, true
		}
	}
	return dst, false
}

// spanAt is the widest run of ranges of one owner that holds the near end of r.
func spanAt(m *partition.Map, r scanRange) partition.Span {
	i := 0
	switch {
	case !r.reverse:
		i = m.At(r.start)
	case len(r.end) == 0:
		i = len(m.Ranges) - 1
	default:
		i = m.At(r.end)
		if bytes.Equal(m.Ranges[i].Start, r.end) {
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

// clip is the part of r within span.
func clip(r scanRange, span partition.Span) scanRange {
	if bytes.Compare(r.start, span.Start) < 0 {
		r.start = span.Start
	}
	if len(span.End) > 0 && (len(r.end) == 0 || bytes.Compare(r.end, span.End) > 0) {
		r.end = span.End
	}
	return r
}

// counting is the state of the answer to "how many keys are there".
type counting struct {
	mu    env.Mutex // held while somebody counts, so that others wait for that result
	value int64
	at    time.Duration
	by    Opened // the client of this server that counted; nil = nobody did
}

// Counting scans all keys; its answer is good for a moment, and it gives up after a number of keys.
const (
	countKeptFor = time.Second
	countAtMost  = 50_000_000
)

// size counts the keys of the whole index.
func (c *core) size(memo *counting) (int64, error) {
	memo.mu.Lock()
	defer memo.mu.Unlock()
	client := c.eng.opened()
	if client != nil && client == memo.by && client.Alive() == nil && c.env.Now()-memo.at < countKeptFor {
		return memo.value, nil
	}
	n := int64(0)
	err := c.scan(scanRange{keysOnly: true}, false, func(_, _ []byte) bool { n++; return n <= countAtMost }, func() error { return nil })
	if err == nil && n > countAtMost {
		err = &failure{code: rpcv1.Outcome_INVALID, message: "the index has more than 50,000,000 keys, which takes too long to count; ask the operator's metrics"}
	}
	if err != nil {
		return 0, err
	}
	memo.value, memo.at, memo.by = n, c.env.Now(), client
	return n, nil
}
