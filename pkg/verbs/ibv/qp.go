//go:build ibv

package ibv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// qp is a verbs.QP. Who kills it destroys the NIC's queue pair before its owner hears of it, so the
// buffers of a list that failed are the owner's again.
type qp struct {
	conn   *conn
	arena  *verbs.Arena
	slot   uint16
	r      *requester
	limit  atomic.Int64          // nanoseconds, of SetLimit
	reason atomic.Pointer[error] // why dead

	// Only the owner.
	started bool
	polled  bool // Poll has seen the end of the list, which is end
	end     error
	closed  bool
	calls   callsState
	call    []verbs.Request // the call that is under way; empty = a list is
	tally   verbs.Tally
}

// callsState reports whether a queue pair takes calls.
type callsState int

const (
	callsUnknown callsState = iota // the server was not asked yet
	callsTaken
	callsRefused // the server has no memory left for them
)

// Start implements verbs.QP.
func (q *qp) Start(list []verbs.Request) error {
	if q.started {
		panic("ibv: Start after Start without Wait")
	}
	if err := verbs.Check(list, q.arena, &q.conn.caps); err != nil {
		if reason := q.Err(); reason != nil {
			return reason
		}
		return err
	}
	if list[0].Op == verbs.Call {
		return q.startCall(list)
	}
	for i := range list {
		if !list[i].InRange(q.conn.regions[list[i].Region].size) {
			return q.outOfRange(list, i)
		}
	}
	if q.reason.Load() != nil {
		return q.dead()
	}
	if err := q.r.post(list); err != nil {
		return q.failed(err)
	}
	q.started = true
	q.tally.Posted(list)
	return nil
}

// startCall is Start of a call. The first of a queue pair asks the server for memory, which takes a
// round trip to its process.
func (q *qp) startCall(list []verbs.Request) error {
	if q.reason.Load() != nil {
		return q.dead()
	}
	if q.calls == callsUnknown {
		f, err := q.conn.ask(frame{kind: frameCalls, slot: q.slot})
		if err != nil {
			return q.failed(fmt.Errorf("ask for calls: %w", err))
		}
		if q.calls = callsTaken; f.code != codeOK {
			q.calls = callsRefused
		}
	}
	if q.calls == callsTaken {
		if err := q.r.call(list); err != nil {
			return q.failed(err)
		}
	}
	q.started, q.call = true, list
	q.tally.Posted(list)
	return nil
}

// waitCall is Wait of a call.
func (q *qp) waitCall() error {
	r := &q.call[0]
	if q.calls == callsRefused {
		r.SetAnswer(verbs.CallBusy, 0)
		return q.Err()
	}
	if err := q.ended(); err != nil {
		return q.failed(err)
	}
	if q.reason.Load() != nil { // the connection has ended; whoever wants the answer asks again
		return q.dead()
	}
	n := q.r.received()
	if _, err := r.Answer(); n < verbs.CallBytes(0) || err == nil && verbs.CallBytes(int(binary.LittleEndian.Uint32(r.Local[4:]))) != n {
		return q.failed(fmt.Errorf("answer of %d bytes to a call: %w", n, errFrame))
	}
	q.tally.Answered(q.call)
	return nil
}

func (q *qp) outOfRange(list []verbs.Request, i int) error {
	r := &list[i]
	q.kill(fmt.Errorf("ibv: request %d (%v of %d bytes at %d:%#x): %w",
		i, r.Op, len(r.Local), r.Region, r.Remote, verbs.ErrOutOfRange))
	return q.dead()
}

// failed lets q die of what its requester met, unless somebody killed it before: that is then why.
func (q *qp) failed(err error) error {
	switch {
	case errors.Is(err, errGone): // killed; the reason was set before
	case errors.Is(err, errLimit):
		q.kill(fmt.Errorf("ibv: no completion from %v within %v: %w",
			q.conn.socket.RemoteAddr(), time.Duration(q.limit.Load()), verbs.ErrTimeout))
	default:
		q.kill(fmt.Errorf("ibv: queue pair with %v: %w", q.conn.socket.RemoteAddr(), err))
	}
	return q.dead()
}

// dead is why q died, once the NIC touches none of its buffers any more.
func (q *qp) dead() error {
	q.r.destroy() // or wait for who does
	return *q.reason.Load()
}

// Wait implements verbs.QP.
func (q *qp) Wait() error {
	if !q.started {
		if err := q.Err(); err != nil {
			return err
		}
		panic("ibv: Wait without Start")
	}
	q.started = false
	if len(q.call) > 0 {
		err := q.waitCall()
		q.call = nil
		return err
	}
	if err := q.ended(); err != nil {
		return q.failed(err)
	}
	return nil
}

// ended waits for the end of the list, and returns it.
func (q *qp) ended() error {
	if q.polled {
		q.polled = false
		return q.end
	}
	return q.r.wait(time.Duration(q.limit.Load()))
}

// Poll implements verbs.QP.
func (q *qp) Poll(limit time.Duration) bool {
	if !q.started || q.polled || len(q.call) > 0 && q.calls == callsRefused {
		return true
	}
	q.end = q.r.wait(limit)
	q.polled = !errors.Is(q.end, errLimit)
	return q.polled
}

// SetLimit implements verbs.QP.
func (q *qp) SetLimit(limit time.Duration) { q.limit.Store(int64(limit)) }

func (q *qp) Tally() *verbs.Tally { return &q.tally }

// Err implements verbs.QP.
func (q *qp) Err() error {
	if r := q.reason.Load(); r != nil {
		return *r
	}
	return nil
}

// kill destroys the NIC's queue pair. The first reason counts. Safe for concurrent use.
func (q *qp) kill(reason error) {
	q.reason.CompareAndSwap(nil, &reason)
	q.r.destroy()
}

// Close implements verbs.QP.
func (q *qp) Close() error {
	if q.closed {
		return nil
	}
	q.closed = true
	q.kill(fmt.Errorf("ibv: queue pair %d: %w", q.slot, verbs.ErrClosed))
	q.started = false
	q.conn.drop(q)
	return nil
}
