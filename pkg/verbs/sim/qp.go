package sim

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// qp is a verbs.QP.
type qp struct {
	conn    *conn
	arena   *verbs.Arena
	tally   verbs.Tally
	limit   time.Duration
	err     error
	started bool
	polled  bool // Poll has seen the end
	waiter  *simenv.Task

	list  []verbs.Request // the last one that was posted
	lists uint64          // that were ever posted

	// Without an adversary (route.go): where the list is, and when its owner's NIC has all answers.
	stage  stage
	next   int             // request to take effect
	at     []time.Duration // of each request: when its message, then its answer, gets where it goes
	effect simenv.Timer    // when something happens next; not while a bucket or call has it
	done   time.Duration
	waits  time.Duration // since when its owner does, or that has still to do before it polls
	polls  time.Duration // what its owner's processor does when it has the answers

	flight *flight // with an adversary
}

func newQP(c *conn, a *verbs.Arena) *qp {
	q := &qp{conn: c, arena: a, limit: verbs.DefaultLimit}
	q.effect.Do = q.proceed
	return q
}

// Start implements verbs.QP.
func (q *qp) Start(list []verbs.Request) error {
	c := q.conn
	if c.device.process.Dead() { // in a deferred function, perhaps in the middle of a Wait
		q.started = false
		q.fail(verbs.ErrClosed)
	}
	if q.started {
		panic("sim: Start after Start without Wait")
	}
	if q.err != nil {
		return q.err
	}
	if err := verbs.Check(list, q.arena, &c.caps); err != nil {
		return err
	}
	for i := range list {
		r := &list[i]
		if !r.InRange(uint64(len(c.server.regions[r.Region]))) {
			q.end(fmt.Errorf("sim: request %d (%v of %d bytes at %d:%#x): %w",
				i, r.Op, len(r.Local), r.Region, r.Remote, verbs.ErrOutOfRange))
			return q.err
		}
	}
	q.started = true
	q.tally.Posted(list)
	f := c.server.fabric
	q.list = list
	q.lists++
	if f.enemy != nil {
		q.flight = f.enemy.launch(q, list)
		if c.stranded { // nobody is there who serves it
			q.flight.stop()
		}
		return nil
	}
	q.post()
	return nil
}

// apply executes r at once with the local bytes given.
func (s *Server) apply(r *verbs.Request, local []byte) {
	at := s.regions[r.Region][r.Remote:][:len(local)]
	switch r.Op {
	case verbs.Read:
		copy(local, at)
	case verbs.Write:
		copy(at, local)
	default:
		old := binary.NativeEndian.Uint64(at)
		binary.NativeEndian.PutUint64(at, r.Outcome(old))
		binary.NativeEndian.PutUint64(local, old)
	}
}

// Wait implements verbs.QP.
func (q *qp) Wait() error {
	if !q.started {
		if q.err != nil {
			return q.err
		}
		panic("sim: Wait without Start")
	}
	if !q.polled && !q.await(q.limit) {
		q.abandon(fmt.Errorf("sim: a list on %s: %w", q.conn.server.address, verbs.ErrTimeout))
	}
	q.started, q.polled = false, false
	if q.err == nil {
		q.tally.Answered(q.list)
	}
	return q.err
}

// Poll implements verbs.QP.
func (q *qp) Poll(limit time.Duration) bool {
	switch {
	case !q.started || q.polled:
		return true
	case limit <= 0: // a look is no wait that the model knows
		now := q.conn.server.fabric.world.Now()
		return q.err != nil || q.flight != nil && q.flight.known || q.flight == nil && q.done <= now
	}
	q.polled = q.await(limit)
	return q.polled
}

// await waits at most for limit until the list has ended, or the queue pair; false = it is under
// way.
func (q *qp) await(limit time.Duration) bool {
	w, p := q.conn.server.fabric.world, q.conn.device.process
	deadline := p.Until(limit)
	q.begin(w)
	for q.err == nil && !q.complete(w.Now()) {
		t := w.Current()
		if t == nil || w.Now() >= deadline {
			return false
		}
		t.Wake(q.wakeAt(deadline))
		q.waiter = t
		parked := t.Park("the fabric")
		q.waiter = nil
		if !parked {
			q.abandon(verbs.ErrClosed)
		}
	}
	return true
}

// begin notes what the model wants to know of a wait that begins.
func (q *qp) begin(w *simenv.World) {
	if q.flight != nil {
		return
	}
	q.waits, q.polls = w.Now(), q.conn.server.fabric.model.Poll
	if t := w.Current(); t != nil {
		q.waits = t.Work(0)
		q.polls += t.Pay(slices.ContainsFunc(q.list, fetches))
	}
}

// fetches reports whether the answer to r has content: what a task owes for that is paid (Pay).
func fetches(r verbs.Request) bool { return r.Op == verbs.Read || r.Op == verbs.Call }

// complete reports whether the list under way has taken effect and its owner knows.
func (q *qp) complete(now time.Duration) bool {
	if q.flight != nil {
		return q.flight.known
	}
	return now >= q.ready()
}

// ready is when the owner of a list, who waits, has polled for its end.
func (q *qp) ready() time.Duration {
	if q.done == env.Forever {
		return env.Forever
	}
	return max(q.done, q.waits) + q.polls
}

// wakeAt is when a waiter looks again.
func (q *qp) wakeAt(deadline time.Duration) time.Duration {
	if q.flight != nil {
		return deadline // or earlier, when the flight ends
	}
	return min(q.ready(), deadline) // or when it is known when the list ends
}

// SetLimit implements verbs.QP.
func (q *qp) SetLimit(limit time.Duration) { q.limit = limit }

func (q *qp) Tally() *verbs.Tally { return &q.tally }
func (q *qp) Err() error          { return q.err }

// Close implements verbs.QP.
func (q *qp) Close() error {
	q.abandon(fmt.Errorf("sim: queue pair: %w", verbs.ErrClosed))
	q.started = false
	remove(&q.conn.qps, q)
	return nil
}

// end lets nothing of the queue pair take effect any more; its owner finds reason, unless there was
// one before.
func (q *qp) end(reason error) {
	w := q.conn.server.fabric.world
	if q.started && q.flight == nil {
		w.Cancel(&q.effect)
		q.lists++ // a bucket forgets it
	}
	if q.flight != nil {
		q.flight.stop()
	}
	q.fail(reason)
}

// abandon lets nothing more be posted; what is under way may go on, and stop anywhere.
func (q *qp) abandon(reason error) {
	switch {
	case q.flight != nil:
		q.flight.abandon()
		q.conn.leave(q.flight)
	case q.started:
		q.conn.server.fabric.world.Cancel(&q.effect)
		q.lists++
	}
	q.fail(reason)
}

func (q *qp) fail(reason error) {
	if q.err == nil {
		q.err = reason
	}
	if q.waiter != nil {
		q.waiter.Wake(q.conn.server.fabric.world.Now())
	}
}
