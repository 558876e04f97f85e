package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/hello"
	"github.com/dmindex/dmindex/pkg/verbs/internal/mapped"
)

// answerBuffer is how many bytes of answers a client reads at once: what a few dozen READs of a
// node bring.
const answerBuffer = 128 << 10

// The reader. Answers arrive on one socket for many waiters, and waking a goroutine from another
// costs more than all the rest of a short round trip. So whoever waits first reads for all: it
// leads. When its own list is answered and others still wait, it passes the role to the background
// goroutine, which keeps it while it serves several at a time, and gives it up when only one is
// left. While nobody waits nobody reads, except that watch looks now and then whether the
// connection is still there. Under TLS it cannot see all that has arrived (spill.ahead), so there
// the background goroutine may wait for more with the role, and takes the next answer.
//
// role reports whether somebody has it; waiting counts who counts on somebody. A waiter adds
// itself, then tries for the role; who gives the role up frees it, then looks whether anybody
// waits: so one of them sees the other.

// lead reads answers until q has its own or is dead. The caller has taken the role.
func (c *conn) lead(q *qp) {
	for q.lead() {
		if err := c.readOnce(); err != nil && c.failRead(err) {
			break
		}
	}
	q.follow()
	c.resign()
}

// resign gives up the role, to the background goroutine if anybody waits.
func (c *conn) resign() {
	c.role.Store(false)
	c.delegate()
}

// delegate gives the role to the background goroutine if it is free and anybody waits.
func (c *conn) delegate() {
	if c.waiting.Load() > 0 && c.role.CompareAndSwap(false, true) {
		// has room: only who has the role sends, and the goroutine takes it before it has the role
		c.appoint <- struct{}{}
	}
}

// background reads for others while it has the role.
func (c *conn) background() {
	defer close(c.unread)
	for {
		select {
		case <-c.appoint:
		case <-c.dead:
			return
		}
		for keep := true; keep; {
			err := c.readOnce()
			if err != nil && c.failRead(err) {
				return
			}
			keep = c.raw == nil || c.served > 1 || c.waiting.Load() > 0
		}
		c.resign()
	}
}

// failRead ends the connection after a failed read and says true; false if the error is only that
// of interrupt.
func (c *conn) failRead(err error) bool {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.socket.SetReadDeadline(time.Time{}) // before its caller looks at its queue pair again
		return false
	}
	if !errors.Is(err, errBye) {
		c.fail(hello.StreamError(err))
	}
	return true
}

// interrupt makes the leader look at its queue pair.
func (c *conn) interrupt() { c.socket.SetReadDeadline(time.Unix(1, 0)) }

// readOnce reads what has arrived, or waits for something, takes answers to their queue pairs, and
// then wakes their owners: so that they find each other ready to post. Only who has the role.
func (c *conn) readOnce() error {
	err := c.in.fill(c.socket)
	for {
		h, frame, e := c.in.next()
		if e == nil && frame != nil {
			e = c.dispatch(&h, frame)
		}
		if e != nil {
			err = e
		}
		if e != nil || frame == nil {
			break
		}
	}
	c.served = len(c.woken)
	if c.served > 0 {
		c.awake.Store(int32(c.served))
	}
	for _, q := range c.woken {
		q.wake <- struct{}{} // has room: its owner takes one for each time it parked
	}
	c.woken = c.woken[:0]
	return err
}

// dispatch handles one frame of the server. The farewell is the error errBye.
func (c *conn) dispatch(h *header, frame []byte) error {
	switch {
	case h.kind == frameList && h.qp < MaxQPs:
		q := c.table[h.qp].Load()
		if q == nil {
			return nil // given up
		}
		wake, err := q.deliver(h, frame)
		if wake {
			c.woken = append(c.woken, q)
		}
		return err
	case h.kind == frameBye:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.closing {
			select {
			case <-c.bye: // a second one
			default:
				close(c.bye)
			}
			return errBye
		}
	case h.kind == frameError && h.code == codeOutOfRange:
		return fmt.Errorf("refused by the memory server: %w", verbs.ErrOutOfRange)
	case h.kind == frameError:
		return fmt.Errorf("refused by the memory server with code %d: %w", h.code, verbs.ErrMalformed)
	}
	return fmt.Errorf("frame of kind %d from the memory server: %w", h.kind, errFrame)
}

// deliver copies an answer to the buffers of q and reports whether its owner is to be woken. A late
// answer, to a list that was given up, changes nothing. Only who has the role of the reader.
func (q *qp) deliver(h *header, frame []byte) (wake bool, err error) {
	for {
		s := q.state.Load()
		if s&pending == 0 || s&dead != 0 {
			return false, nil
		}
		if q.state.CompareAndSwap(s, s|delivering) {
			break
		}
	}
	done := false
	if h.seq == q.expect {
		err = q.take(h, frame)
		done = err == nil && q.answered == len(q.list)
	}
	for {
		s := q.state.Load()
		n := s &^ delivering
		if done {
			n &^= pending | parked | leading | late
		}
		if !q.state.CompareAndSwap(s, n) {
			continue
		}
		if !done || s&dead != 0 { // who killed it has woken its owner
			return false, err
		}
		q.conn.active.Add(-1)
		if s&parked != 0 {
			q.conn.waiting.Add(-1)
		}
		return s&parked != 0, nil
	}
}

// take copies the answer of one frame: the next h.count requests of the list.
func (q *qp) take(h *header, frame []byte) error {
	if q.list[0].Op == verbs.Call {
		return q.takeCall(h, frame)
	}
	n := int(h.count)
	if n == 0 || n > len(q.list)-q.answered {
		return fmt.Errorf("answer to %d requests of %d: %w", n, len(q.list)-q.answered, errFrame)
	}
	part := q.list[q.answered : q.answered+n]
	size := headerSize
	for i := range part {
		size += answerBytes(part[i].Op, len(part[i].Local))
	}
	if size != len(frame) {
		return fmt.Errorf("answer of %d bytes where %d belong: %w", len(frame), size, errFrame)
	}
	rest := frame[headerSize:]
	for i := range part {
		r := &part[i]
		switch {
		case r.Op == verbs.Read:
			copy(r.Local, rest)
		case r.Op.Atomic():
			mapped.PutNative(r.Local, binary.LittleEndian.Uint64(rest))
		}
		rest = rest[answerBytes(r.Op, len(r.Local)):]
	}
	q.answered += n
	q.expect++
	return nil
}
