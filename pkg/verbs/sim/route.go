package sim

import (
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Without an adversary a list passes the queues of the [Model]. Each queue is entered at the time
// at which its messages come there, so each is served in the order of arrival:
//
//  1. post: the client's processor posts the list; its messages pass the client's outgoing line.
//  2. arrive, half a round trip behind the last of them: the messages pass the server's incoming
//     line, and take effect in the order of the list, which is all the order that G1 asks for.
//     Answers pass the server's outgoing line.
//  3. Atomics on host memory, and WRITEs to words that may be locks there, wait in the queue of
//     their bucket (bucket.go). What is behind them in the list waits with them.
//  4. answered, when the last answer has come to the client: the answers pass the client's incoming
//     line. The client knows when they are through and its processor has polled (qp.Wait).
//
// What reaches a server takes effect in its memory at the moment of its arrival, though it has yet
// to pass the incoming line: a line changes the order of nothing.

// stage of a list.
type stage uint8

const (
	toServer stage = iota
	inBucket
	toClient
)

// post sends the list of q on its way.
func (q *qp) post() {
	c := q.conn
	f := c.server.fabric
	m := &f.model
	at := f.world.Now() + m.Post
	if t := f.world.Current(); t != nil {
		at = t.Work(m.Post)
	}
	at += m.Doorbell
	q.at, q.next, q.stage, q.done = q.at[:0], 0, toServer, env.Forever
	last := time.Duration(0)
	for i := range q.list {
		n := sends(&q.list[i])
		sent := c.device.nic.out.take(at, m.message(m.ClientMessage, n))
		if n > m.Inline {
			sent += m.Fetch // a NIC fetches for several messages at a time
		}
		last = max(last, sent+m.BaseRTT/2)
		q.at = append(q.at, last)
	}
	f.world.Schedule(&q.effect, last, nil)
}

// proceed is the next event of the list under way.
func (q *qp) proceed() {
	if q.stage == toServer {
		q.arrive()
	} else {
		q.answered()
	}
}

// arrive is when all messages of the list have reached the server.
func (q *qp) arrive() {
	s := q.conn.server
	m := &s.fabric.model
	s.fabric.world.Note(uint64(len(q.list)))
	for i := range q.list {
		q.at[i] = s.nic.in.take(q.at[i], m.message(m.ServerMessage, sends(&q.list[i])))
	}
	if q.list[0].Op == verbs.Call {
		q.arriveCall()
		return
	}
	q.takeEffect(0)
}

// takeEffect applies the rest of the list, in its order, up to what has to wait in a bucket. at is
// when what came before has taken effect.
func (q *qp) takeEffect(at time.Duration) {
	s := q.conn.server
	for ; q.next < len(q.list); q.next++ {
		r := &q.list[q.next]
		at = max(at, q.at[q.next])
		if s.queues(r) {
			q.at[q.next], q.stage = at, inBucket
			s.bucketOf(r).enter(q)
			return
		}
		if r.Op.Atomic() {
			at = s.chip.take(at, s.fabric.model.AtomicOnChip)
		}
		q.apply(at)
	}
	last := time.Duration(0)
	for _, back := range q.at {
		last = max(last, back)
	}
	q.answerAt(last)
}

// answerAt makes the last answer reach the client at a time.
func (q *qp) answerAt(at time.Duration) {
	q.stage = toClient
	q.conn.server.fabric.world.Schedule(&q.effect, at, nil)
}

// apply executes the next request. at is when, for its answer, which goes to the server's outgoing
// line; q.at then says when that reaches the client.
func (q *qp) apply(at time.Duration) {
	s := q.conn.server
	m, r := &s.fabric.model, &q.list[q.next]
	s.apply(r, r.Local)
	if n := answers(r); n > 0 {
		at = s.nic.out.take(at, m.message(m.ServerMessage, n))
	}
	q.at[q.next] = at + m.BaseRTT/2 // acknowledgements of WRITEs take no place in a line
}

// answered is when the last answer has reached the client.
func (q *qp) answered() {
	f := q.conn.server.fabric
	m := &f.model
	q.done = f.world.Now()
	for i := range q.list {
		if n := answers(&q.list[i]); n > 0 {
			q.done = max(q.done, q.conn.device.nic.in.take(q.at[i], m.message(m.ClientMessage, n)))
		}
	}
	if q.waiter != nil {
		q.waiter.Wake(q.ready())
	}
}
