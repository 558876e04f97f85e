package tcp

import (
	"encoding/binary"
	"fmt"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/mapped"
)

// callAnswer is how long the answer of a call is with nothing in it.
const callAnswer = headerSize + 8

// call executes a call and appends its answer. It runs on the goroutine of its connection, as lists
// do: so it comes after all that the caller's connection has completed, nothing of it is left when
// the connection has ended, and what has to wait is the connection of who called.
func (s *session) call(h *header, r *request) error {
	room := r.length - 8
	if err := s.room(callAnswer + pad(room)); err != nil {
		return err
	}
	if s.journal == nil {
		s.beginCheck()
	} else if err := s.begin(nil); err != nil {
		return err
	}
	at := len(s.out)
	s.out = s.out[:at+callAnswer+pad(room)]
	status, n := s.callers.Call(s.peer, s, r.Local, s.out[at+callAnswer:][:room])
	if s.journal == nil {
		s.endCheck()
	} else {
		s.end(nil)
	}
	mapped.Barrier() // what the answer shows is seen by everybody (G3)
	size := callAnswer + pad(n)
	clear(s.out[at+callAnswer+n : at+size])
	s.out = s.out[:at+size]
	(&header{size: uint32(size), qp: h.qp, kind: frameList, count: 1, seq: h.seq}).put(s.out[at:])
	binary.LittleEndian.PutUint32(s.out[at+headerSize:], uint32(status))
	binary.LittleEndian.PutUint32(s.out[at+headerSize+4:], uint32(n))
	return nil
}

// Read implements verbs.Near: the memory as a call of the session may see it.
func (s *session) Read(region verbs.RegionID, remote uint64, dst []byte) error {
	if region > verbs.RegionLocks || !s.space.Contains(region, remote, len(dst)) || !s.reach.Allows(region, remote, len(dst)) {
		return verbs.ErrOutOfRange
	}
	err := s.space.Read(region, remote, dst)
	if s.journal != nil && err == nil {
		mapped.KeepOrder() // the stamps are looked at behind the bytes
		s.saw(region, remote, len(dst))
	}
	return err
}

// takeCall copies the answer of a call.
func (q *qp) takeCall(h *header, frame []byte) error {
	r := &q.list[0]
	if h.count != 1 || len(frame) < callAnswer {
		return fmt.Errorf("answer of %d bytes to a call: %w", len(frame), errFrame)
	}
	n := binary.LittleEndian.Uint32(frame[headerSize+4:])
	if int64(n) > int64(len(r.AnswerRoom())) || callAnswer+pad(int(n)) != len(frame) {
		return fmt.Errorf("answer of %d bytes in %d to a call with room for %d: %w", n, len(frame), len(r.AnswerRoom()), errFrame)
	}
	copy(r.Local, frame[headerSize:callAnswer+int(n)])
	q.answered++
	q.expect++
	return nil
}
