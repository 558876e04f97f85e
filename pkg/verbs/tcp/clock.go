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

// clock lets waits be bounded without a timer each: owners write down when they want to be woken,
// and one goroutine of the connection looks.
type clock struct {
	base   time.Time
	coarse atomic.Int64  // now, at most idleTick old
	next   atomic.Int64  // when the watch looks next
	kick   chan struct{} // look now
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

// setDeadline writes down the deadline of a wait that begins now, and returns it. A long limit
// reads the coarse clock and gets its error on top: a wait may end idleTick late, never early.
func (q *qp) setDeadline() (deadline int64) {
	k := &q.conn.clock
	limit := q.limit.Load()
	if limit >= int64(fineLimit) {
		now := k.coarse.Load() + int64(idleTick)
		deadline = now + min(limit, math.MaxInt64-now)
	} else {
		deadline = k.now() + max(0, limit)
	}
	q.deadline.Store(deadline)
	return deadline
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
		k.coarse.Store(now)
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
			// list from the next.
			left := time.Duration(q.deadline.Load() - now)
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
