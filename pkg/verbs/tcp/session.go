package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/mapped"
	"github.com/dmindex/dmindex/pkg/verbs/internal/serve"
)

// session executes the lists of one connection, in the order they arrive, on one goroutine: so
// every list of a queue pair is in order, and when run returns nothing of the session takes effect
// any more. A client that does not take its answers stops being read, so what it can make the
// server hold is bounded by the buffers.
type session struct {
	conn    net.Conn
	peer    verbs.Peer
	wasCut  <-chan struct{}
	space   *mapped.Space
	callers *verbs.Callers
	reach   *verbs.Reach
	checks  atomic.Uint64 // odd from before a list is checked until it was executed; see checking
	checked bool          // checks is counted: there is a reach, or a journal
	answers atomic.Uint64 // with a journal: odd while something was read and may not be answered

	journal *verbs.Journal // nil = the memory never has a copy
	waiter  *verbs.Waiter  // for copies
	ordered bool           // the session has the journal's order
	need    verbs.Position // what copies must have before the answers go out

	in       inbox  // its buffer is own, or large while that is not nil
	out      []byte // answers not yet sent; never grows
	reqs     [verbs.MaxList]request
	deadline time.Time // for writes, as last set

	own    []byte
	large  []byte    // of shared; holds one long frame, or the part of it that has arrived
	until  time.Time // when a holder of a large buffer loses it
	shared *buffers
}

func newSession(c *serve.Session, space *mapped.Space, callers *verbs.Callers, shared *buffers) *session {
	own := make([]byte, inBuffer)
	return &session{
		conn: newStream(c.Conn), peer: c.Peer, wasCut: c.WasCut(), space: space, callers: callers,
		in: inbox{buf: own}, out: make([]byte, 0, outBuffer), own: own, shared: shared,
	}
}

// errBye ends a session whose client said farewell.
var errBye = errors.New("bye")

func (s *session) run() {
	s.shared.sessions.Add(1)
	defer s.shared.sessions.Add(-1)
	defer s.giveLarge()
	defer s.leaveOrder()
	for {
		err := s.fill()
		if s.journal != nil {
			s.answers.Add(1)
		}
		if e := s.execute(); e != nil {
			s.flush() // an error frame or the farewell; whoever is gone misses nothing
			return
		}
		if s.large != nil && s.in.start == s.in.end {
			s.giveLarge()
			s.conn.SetReadDeadline(time.Time{})
		}
		if s.flush() != nil || err != nil {
			return
		}
		if s.journal != nil {
			s.answers.Add(1)
		}
	}
}

// fill reads once. If the unfinished frame is too long for the session's own buffer, it waits for a
// large one first. All answers were sent before. Of a large buffer only as much is used as the
// frame takes, so that nothing but this frame decides when the buffer is given back.
func (s *session) fill() error {
	if s.large == nil && s.in.need() > len(s.own) {
		large, err := s.shared.take(s.peer.Index, s.wasCut)
		if err != nil {
			return err
		}
		s.large = large
		s.in.move(large[:s.in.need()])
		s.until = time.Now().Add(s.shared.frame)
		s.conn.SetReadDeadline(s.until)
	}
	return s.in.fill(s.conn)
}

// giveLarge goes back to the session's own buffer.
func (s *session) giveLarge() {
	if s.large != nil {
		s.shared.give(s.peer.Index, s.large)
		s.large, s.in = nil, inbox{buf: s.own}
	}
}

// execute executes every whole frame that has arrived and appends the answers.
func (s *session) execute() error {
	for {
		h, frame, err := s.in.next()
		if err != nil {
			return s.fail(&h, codeMalformed, err)
		}
		if frame == nil {
			return nil
		}
		switch h.kind {
		case frameList:
			err = s.list(&h, frame)
		case frameBye:
			s.room(headerSize)
			s.out = (&header{size: headerSize, kind: frameBye}).append(s.out)
			err = errBye
		default:
			err = s.fail(&h, codeMalformed, fmt.Errorf("frame of kind %d: %w", h.kind, errFrame))
		}
		if err != nil {
			return err
		}
	}
}

// room sends the answers if there is no room for n more bytes, which are at most outBuffer.
func (s *session) room(n int) error {
	if n <= cap(s.out)-len(s.out) {
		return nil
	}
	return s.flush()
}

// fail answers with an error frame, the last of the session.
func (s *session) fail(h *header, code uint32, err error) error {
	s.room(headerSize)
	s.out = (&header{size: headerSize, kind: frameError, qp: h.qp, seq: h.seq, code: code}).append(s.out)
	return err
}

// list executes one list frame: nothing of it unless all of it is right.
func (s *session) list(h *header, frame []byte) error {
	list, answer, err := decodeList(h, frame, &s.reqs)
	if err != nil {
		return s.fail(h, codeMalformed, err)
	}
	if list[0].Op == verbs.Call {
		if !s.callers.Any() {
			return s.fail(h, codeMalformed, verbs.ErrUnsupported)
		}
		return s.call(h, &list[0])
	}
	if answer > outBuffer {
		return s.long(h, list, answer)
	}
	if err := s.room(answer); err != nil {
		return err
	}
	return s.apply(h, list, answer)
}

// reaches reports whether requests are within what the session may reach.
func (s *session) reaches(list []request) bool {
	for i := range list {
		if r := &list[i]; !s.space.Contains(r.Region, r.Remote, r.length) || !s.reach.Allows(r.Region, r.Remote, r.length) {
			return false
		}
	}
	return true
}

// apply executes a list and appends its answer, for which there is room. It waits for nothing
// between check and execution.
func (s *session) apply(h *header, list []request, answer int) error {
	if s.journal == nil {
		s.beginCheck()
	} else if err := s.begin(list); err != nil {
		return err
	}
	allowed := s.reaches(list)
	if allowed {
		s.perform(h, list, answer)
	}
	if s.journal == nil {
		s.endCheck()
	} else {
		s.end(list)
	}
	if !allowed {
		return s.fail(h, codeOutOfRange, verbs.ErrOutOfRange)
	}
	return nil
}

func (s *session) perform(h *header, list []request, answer int) {
	at := len(s.out)
	s.out = s.out[:at+answer]
	(&header{size: uint32(answer), qp: h.qp, kind: frameList, count: h.count, seq: h.seq}).put(s.out[at:])
	at += headerSize
	pending := false
	var old uint64
	for i := range list {
		r := &list[i]
		if r.Op != verbs.Write {
			r.Local = s.out[at : at+r.length : at+r.length]
			clear(s.out[at+r.length : at+pad(r.length)])
			at += pad(r.length)
		}
		if s.ordered {
			s.record(r)
		}
		old, pending = s.space.Apply(&r.Request, pending)
		if r.Op.Atomic() {
			binary.LittleEndian.PutUint64(r.Local, old)
		}
	}
	if pending {
		mapped.Barrier() // what the answer reports is seen by everybody (G3)
	}
}

// long executes a list whose answer is longer than outBuffer. The answer goes out at once if a
// large buffer is to spare, which saves the client many wakeups, else in pieces.
func (s *session) long(h *header, list []request, answer int) error {
	if err := s.flush(); err != nil {
		return err
	}
	large := s.shared.spare(s.peer.Index)
	if large == nil {
		return s.pieces(h, list, answer)
	}
	if s.large == nil {
		s.until = time.Now().Add(s.shared.frame)
	}
	own := s.out
	defer func() {
		s.out = own
		s.shared.give(s.peer.Index, large)
	}()
	s.out = large[:0]
	if err := s.apply(h, list, answer); err != nil {
		return errors.Join(err, s.send(s.until))
	}
	return s.send(s.until)
}

// pieces executes a list whose answer is longer than outBuffer, and sends what is in out whenever
// it is full. The client takes an answer only once it has all of it, and the last piece is sent
// after the barrier, so G3 holds as for any other list. The order of the requests is the same, too
// (G1).
//
// A READ is parted where a word of the region begins, so that each of its words is still read in
// one access (G2). If the client is gone, the rest of the list is executed all the same: a list
// that was begun is not left half done, unless a part of it is taken away meanwhile: each piece is
// checked again, as sending may take long.
func (s *session) pieces(h *header, list []request, answer int) error {
	gone := s.room(headerSize)
	s.beginCheck()
	allowed := s.reaches(list)
	s.endCheck()
	if !allowed {
		return s.fail(h, codeOutOfRange, verbs.ErrOutOfRange)
	}
	send := func() {
		if gone == nil {
			gone = s.flush()
		}
		s.out = s.out[:0]
	}
	s.out = (&header{size: uint32(answer), qp: h.qp, kind: frameList, count: h.count, seq: h.seq}).append(s.out)
	pending := false
	var old uint64
	var err error
	for i := range list {
		r := &list[i]
		if r.Op == verbs.Write {
			if _, pending, err = s.applyPart(r, r.length, pending); err != nil {
				return err
			}
			continue
		}
		for left := r.length; left > 0; {
			if cap(s.out)-len(s.out) < 2*8 {
				send()
			}
			n := min(left, cap(s.out)-len(s.out))
			if n < left {
				n -= int((r.Remote + uint64(n)) % 8)
			}
			at := len(s.out)
			s.out = s.out[:at+n]
			r.Local = s.out[at : at+n : at+n]
			if old, pending, err = s.applyPart(r, n, pending); err != nil {
				return err
			}
			if r.Op.Atomic() {
				binary.LittleEndian.PutUint64(r.Local, old)
			}
			r.Remote += uint64(n)
			left -= n
		}
		if cap(s.out)-len(s.out) < 8 {
			send()
		}
		s.out = append(s.out, zeros[:pad(r.length)-r.length]...)
	}
	if pending {
		mapped.Barrier()
	}
	return gone
}

// applyPart executes n bytes of a request if they may still be reached. With a journal each part is
// a list of its own: the order is not held while a piece is sent.
func (s *session) applyPart(r *request, n int, pending bool) (old uint64, nowPending bool, err error) {
	part := [1]request{*r}
	part[0].length = n
	if s.journal == nil {
		s.beginCheck()
	} else if err := s.begin(part[:]); err != nil {
		return 0, pending, err
	}
	allowed := s.reach.Allows(r.Region, r.Remote, n)
	if allowed {
		if s.ordered {
			s.record(&part[0])
		}
		old, pending = s.space.Apply(&r.Request, pending)
	}
	if s.journal == nil {
		s.endCheck()
	} else {
		s.end(part[:])
	}
	if !allowed {
		err = verbs.ErrOutOfRange
	}
	return old, pending, err
}

// flush sends the answers. The deadline is moved only when half of it has gone by: setting one
// costs more than a small write. A session that holds a large buffer has less time.
func (s *session) flush() error {
	if len(s.out) == 0 {
		return nil
	}
	if s.large != nil {
		return s.send(s.until)
	}
	if now := time.Now(); s.deadline.Sub(now) < writeLimit {
		return s.send(now.Add(2 * writeLimit))
	}
	return s.send(s.deadline)
}

// send sends the answers until deadline, once copies have what they depend on.
func (s *session) send(deadline time.Time) error {
	if s.journal != nil {
		if err := s.journal.Wait(s.waiter, s.need); err != nil {
			s.out = s.out[:0]
			return err
		}
	}
	if deadline != s.deadline {
		s.deadline = deadline
		s.conn.SetWriteDeadline(deadline)
	}
	_, err := s.conn.Write(s.out)
	s.out = s.out[:0]
	return err
}
