package tcp

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/verbs"
)

const (
	// how often the watch looks at queue pairs when no deadline is nearer
	idleTick = 250 * time.Millisecond
	// limits below it are kept to the millisecond, others to idleTick
	fineLimit = time.Second
	fineTick  = time.Millisecond
)

// clock lets waits be bounded without a timer each: one goroutine of the connection, the watch,
// looks at them. Owners write down when a wait with a short limit ends. A long limit costs its
// owner no look at a clock: the watch counts it from when it first sees the wait. That is after the
// wait began, however late the watch comes, so a wait may end late and never early.
type clock struct {
	base time.Time
	next atomic.Int64  // when the watch looks next
	kick chan struct{} // look now
}

func (k *clock) init() {
	k.base = time.Now()
	k.kick = make(chan struct{}, 1)
	k.next.Store(int64(idleTick))
}

func (k *clock) now() int64 { return int64(time.Since(k.base)) }

// see makes the watch look again if it would sleep over deadline. It is called after parked was
// set: a watch that has not seen that has not written next yet, or next is what it will keep to.
func (k *clock) see(deadline int64) {
	if deadline >= k.next.Load() {
		return
	}
	select {
	case k.kick <- struct{}{}:
	default: // it will look anyway
	}
}

// setDeadline writes down when a wait that begins now ends, and returns it; MaxInt64 = the watch
// counts the limit, which is that of SetLimit.
func (q *qp) setDeadline(limit time.Duration) (deadline int64) {
	deadline = math.MaxInt64
	if limit < fineLimit || q.polls.Load() {
		deadline = q.conn.clock.now() + int64(max(0, limit))
	}
	q.deadline.Store(deadline)
	return deadline
}

// left is how much time a wait has at now, or before; s is the state of q with it. Only the watch
// calls it.
func (q *qp) left(s uint64, now int64) time.Duration {
	if deadline := q.deadline.Load(); deadline != math.MaxInt64 {
		return time.Duration(deadline - now)
	}
	if number := s >> stateBits; number != q.seen {
		q.seen, q.seenAt = number, q.conn.clock.now() // not now, when it may not have begun
	}
	return time.Duration(q.limit.Load() - max(0, now-q.seenAt))
}

// watch kills queue pairs whose owner waits longer than its limit.
func (c *conn) watch() {
	k := &c.clock
	timer := time.NewTimer(idleTick)
	defer timer.Stop()
	for {
		select {
		case <-c.dead:
			return
		case <-k.kick:
		case <-timer.C:
		}
		now := k.now()
		// From here on a shorter deadline kicks: next is lowered only after all of them were looked
		// at.
		k.next.Store(math.MaxInt64)
		wait := idleTick
		for i := range c.table {
			q := c.table[i].Load()
			if q == nil {
				continue
			}
			s := q.state.Load()
			if s&(parked|leading) == 0 {
				continue
			}
			// The deadline was written before the bit was set, and the state's number tells this
			// list from the next: killIn does nothing if the owner has gone on.
			left := q.left(s, now)
			if left <= 0 && q.polls.Load() {
				q.expire(s)
				continue
			}
			if left <= 0 {
				limit := time.Duration(q.limit.Load())
				q.killIn(s, fmt.Errorf("tcp: no answer of %v within %v: %w", c.socket.RemoteAddr(), limit, verbs.ErrTimeout))
				continue
			}
			wait = min(wait, max(left, fineTick))
		}
		c.look()
		timer.Reset(wait)
		k.next.Store(now + int64(wait))
	}
}

// look notices the end of a connection on which nobody waits for anything. Only watch calls it.
func (c *conn) look() {
	if c.raw == nil || !c.role.CompareAndSwap(false, true) {
		return
	}
	if err := c.raw.Read(c.peek); err != nil || c.arrived || c.spill != nil && c.spill.ahead.Load() {
		c.appoint <- struct{}{} // there is something to read, be it the end, or there may be
		return
	}
	c.resign()
}

// tryPeek says in arrived whether a read would not wait. It is called with the descriptor by the
// RawConn and never asks to wait.
func (c *conn) tryPeek(fd uintptr) bool {
	_, _, err := unix.Recvfrom(int(fd), c.peeked[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	c.arrived = err != unix.EAGAIN && err != unix.EINTR
	return true
}
