package tcp

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// The bits of qp.state. Above them is a number that grows with every list, so that who looked at
// one list cannot end another.
//
//	          Start            answer                last answer
//	0 ------------> pending <--------> +delivering ------------> 0
//	any of them ----> +dead, -parked, for good
//
// parked and leading come and go while the owner waits. late comes when the limit of a Poll is
// over; its owner takes it away, or the last answer.
const (
	pending    = 1 << iota // a list is under way
	delivering             // the reader copies into the owner's buffers
	parked                 // the owner sleeps until wake
	leading                // the owner reads answers for all
	late                   // the owner is to stop waiting
	dead                   // reason says why
	stateBits  = 8
)

// qp is a verbs.QP. Its owner, the reader, the writer and who kills it meet in state; list belongs
// to the owner from the moment that pending is clear, or dead is set, delivering clear and queue
// without q (see settle).
type qp struct {
	conn  *conn
	arena *verbs.Arena
	id    uint16
	wake  chan struct{} // one element for each time that parked was taken away

	state    atomic.Uint64
	limit    atomic.Int64 // nanoseconds, of SetLimit
	deadline atomic.Int64 // of the owner's wait, on the conn's clock; see setDeadline
	polls    atomic.Bool  // that wait is a Poll; written before parked or leading
	dying    sync.Mutex   // held while killing
	reason   error        // written before dead is set, never again

	list     []verbs.Request
	encoded  int    // of list, moved to the conn's out; under conn.mu
	answered int    // of list; the reader's while delivering
	expect   uint32 // sequence of the next answer; the reader's while delivering

	// Only the watch.
	seen   uint64 // number of the list with a long limit whose wait it saw last
	seenAt int64  // when it saw that first

	// Only the owner.
	started bool
	staged  bool // the list may still be in out with nobody to send it
	closed  bool
	until   int64  // when its wait ends; for lead
	number  uint64 // of the list, shifted left by stateBits
	tally   verbs.Tally
}

// Start implements verbs.QP.
func (q *qp) Start(list []verbs.Request) error { return q.start(list, true) }

// Stage implements verbs.Stager.
func (q *qp) Stage(list []verbs.Request) error { return q.start(list, false) }

func (q *qp) start(list []verbs.Request, send bool) error {
	if q.started {
		panic("tcp: Start after Start without Wait")
	}
	if err := verbs.Check(list, q.arena, &q.conn.caps); err != nil {
		if reason := q.Err(); reason != nil {
			return reason
		}
		return err
	}
	for i := range list {
		if !list[i].InRange(q.conn.sizes[list[i].Region]) {
			return q.outOfRange(list, i)
		}
	}
	c := q.conn
	c.mu.Lock()
	if c.err != nil {
		err := c.err
		c.mu.Unlock()
		q.kill(err)
		return q.Err()
	}
	q.list, q.encoded, q.answered, q.expect = list, 0, 0, c.seqs[q.id]
	number := q.number + 1<<stateBits
	if !q.state.CompareAndSwap(q.number, number|pending) {
		c.mu.Unlock()
		return q.Err()
	}
	q.number = number
	q.started = true
	q.tally.Posted(list)
	c.active.Add(1)
	if c.awake.Load() > 0 {
		c.awake.Add(-1)
	}
	c.post(q)
	q.staged = !send
	if send {
		c.push(maxYields)
	} else {
		c.mu.Unlock()
	}
	return nil
}

// Flush implements verbs.Stager.
func (q *qp) Flush() {
	if q.staged {
		q.staged = false
		q.conn.mu.Lock()
		q.conn.pushStaged()
	}
}

func (q *qp) outOfRange(list []verbs.Request, i int) error {
	r := &list[i]
	q.kill(fmt.Errorf("tcp: request %d (%v of %d bytes at %d:%#x): %w",
		i, r.Op, len(r.Local), r.Region, r.Remote, verbs.ErrOutOfRange))
	return q.Err()
}

// Wait implements verbs.QP.
func (q *qp) Wait() error {
	if !q.started {
		if err := q.Err(); err != nil {
			return err
		}
		panic("tcp: Wait without Start")
	}
	q.await(time.Duration(q.limit.Load()))
	q.started = false
	if q.state.Load()&dead != 0 {
		q.settle()
		return q.reason
	}
	q.staged = false // somebody has sent it
	q.tally.Answered(q.list)
	return nil
}

// Poll implements verbs.QP.
func (q *qp) Poll(limit time.Duration) bool {
	switch {
	case !q.started:
		return true
	case limit <= 0:
		q.Flush()
		return q.over(q.state.Load())
	}
	q.polls.Store(true)
	over := q.await(limit)
	q.polls.Store(false)
	return over
}

// over reports whether nothing is under way in state s.
func (q *qp) over(s uint64) bool { return s&dead != 0 || s&pending == 0 }

// await waits until the list has ended, or the queue pair. Of a Poll it may end before, after
// limit: then it returns false.
func (q *qp) await(limit time.Duration) bool {
	for deadline := int64(0); ; {
		s := q.state.Load()
		switch {
		case q.over(s):
			return true
		case s&late != 0:
			if q.state.CompareAndSwap(s, s&^late) {
				return false
			}
			continue
		case q.staged:
			q.Flush()
			continue
		}
		if deadline == 0 {
			deadline = q.setDeadline(limit)
		}
		c := q.conn
		c.waiting.Add(1)
		if c.role.CompareAndSwap(false, true) {
			c.waiting.Add(-1)
			q.until = deadline
			c.lead(q)
			continue
		}
		if !q.state.CompareAndSwap(s, s|parked) {
			c.waiting.Add(-1)
			continue
		}
		c.clock.see(deadline)
		<-q.wake // who took parked away has subtracted from waiting
	}
}

// lead reports whether the owner, which has the role of the reader, is to go on reading.
func (q *qp) lead() bool {
	for {
		s := q.state.Load()
		switch {
		case q.over(s), s&late != 0:
			return false
		case s&leading != 0 || q.state.CompareAndSwap(s, s|leading):
			if s&leading == 0 {
				q.conn.clock.see(q.until)
			}
			return true
		}
	}
}

// follow ends lead.
func (q *qp) follow() { q.state.And(^uint64(leading)) }

// settle waits until nobody uses the list of a dead queue pair.
func (q *qp) settle() {
	for q.state.Load()&delivering != 0 { // for the time of copying one frame
		runtime.Gosched()
	}
	c := q.conn
	c.mu.Lock()
	c.queue = slices.DeleteFunc(c.queue, func(o *qp) bool { return o == q })
	c.mu.Unlock()
}

// kill lets q die for reason, unless it is dead already. Safe for concurrent use.
func (q *qp) kill(reason error) {
	for {
		s := q.state.Load()
		if s&dead != 0 || q.killIn(s, reason) {
			return
		}
	}
}

// killIn lets q die if its state is still s, which is not dead.
func (q *qp) killIn(s uint64, reason error) bool {
	q.dying.Lock()
	defer q.dying.Unlock()
	if q.state.Load() != s {
		return false
	}
	q.reason = reason // nobody reads it before dead is set
	if !q.state.CompareAndSwap(s, s&^parked|dead) {
		return false
	}
	if s&pending != 0 {
		q.conn.active.Add(-1)
	}
	if s&parked != 0 {
		q.conn.waiting.Add(-1)
		q.wake <- struct{}{} // has room: parked is taken away once
	}
	if s&leading != 0 {
		q.conn.interrupt()
	}
	return true
}

// expire ends the Poll that waits in state s, if it still does.
func (q *qp) expire(s uint64) {
	if !q.state.CompareAndSwap(s, s&^parked|late) {
		return // there was an answer, or the end
	}
	if s&parked != 0 {
		q.conn.waiting.Add(-1)
		q.wake <- struct{}{} // has room: parked is taken away once
	}
	if s&leading != 0 {
		q.conn.interrupt()
	}
}

// SetLimit implements verbs.QP.
func (q *qp) SetLimit(limit time.Duration) { q.limit.Store(int64(limit)) }

func (q *qp) Tally() *verbs.Tally { return &q.tally }

// Err implements verbs.QP.
func (q *qp) Err() error {
	if q.state.Load()&dead != 0 {
		return q.reason
	}
	return nil
}

// Close implements verbs.QP.
func (q *qp) Close() error {
	if q.closed {
		return nil
	}
	q.closed = true
	c := q.conn
	q.kill(fmt.Errorf("tcp: queue pair %d: %w", q.id, verbs.ErrClosed))
	q.settle()
	q.started = false
	c.table[q.id].Store(nil)
	c.mu.Lock()
	c.qps--
	c.mu.Unlock()
	return nil
}
