package tcp

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/mapped"
)

// answerBuffer is how many bytes of answers a client reads at once: what a few dozen READs of a node bring.
const answerBuffer = 128 << 10

// read takes answers to their queue pairs until the connection ends.
func (c *conn) read() {
	defer close(c.unread)
	in := newInbox(answerBuffer)
	woken := make([]*qp, 0, MaxQPs)
	for {
		err := in.fill(c.socket)
		bye := false
		for !bye {
			h, frame, e := in.next()
			if e == nil && frame != nil {
				bye, e = c.dispatch(&h, frame, &woken)
			}
			if e != nil {
				err = e
			}
			if e != nil || frame == nil {
				break
			}
		}
		if len(woken) > 0 {
			c.awake.Store(int32(len(woken)))
		}
		for _, q := range woken {
			q.wake <- struct{}{} // has room: its waiter takes one for each time it parked
		}
		woken = woken[:0]
		switch {
		case bye:
			close(c.bye)
			return
		case err != nil:
			c.fail(streamError(err))
			return
		}
	}
}

// dispatch handles one frame of the server and says whether it is the farewell.
func (c *conn) dispatch(h *header, frame []byte, woken *[]*qp) (bye bool, err error) {
	switch {
	case h.kind == frameList && h.qp < MaxQPs:
		q := c.table[h.qp].Load()
		if q == nil {
			return false, nil // given up
		}
		wake, err := q.deliver(h, frame)
		if wake {
			*woken = append(*woken, q)
		}
		return false, err
	case h.kind == frameBye:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.closing {
			return true, nil
		}
	case h.kind == frameError && h.code == codeOutOfRange:
		return false, fmt.Errorf("refused by the memory server: %w", verbs.ErrOutOfRange)
	case h.kind == frameError:
		return false, fmt.Errorf("refused by the memory server with code %d: %w", h.code, verbs.ErrMalformed)
	}
	return false, fmt.Errorf("frame of kind %d from the memory server: %w", h.kind, errFrame)
}

// deliver copies an answer to the buffers of q and says whether its owner is to be woken. A late answer, to a list that was
// given up, changes nothing. Only the reader calls it.
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
			n &^= pending | parked
		}
		if !q.state.CompareAndSwap(s, n) {
			continue
		}
		if !done || s&dead != 0 { // who killed it has woken its owner
			return false, err
		}
		q.conn.active.Add(-1)
		return s&parked != 0, nil
	}
}

// take copies the answer of one frame: the next h.count requests of the list.
func (q *qp) take(h *header, frame []byte) error {
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

// Close implements verbs.Conn. See the package comment for what it promises.
func (c *conn) Close() error {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		<-c.closed
		return c.closeErr
	}
	c.closing = true
	if broken := c.err; broken != nil {
		c.mu.Unlock()
		c.closeErr = broken
	} else {
		c.closeErr = c.farewell()
	}
	c.socket.Close()
	c.ended.Wait()
	close(c.closed)
	return c.closeErr
}

// farewell ends the queue pairs, drops what nobody has begun to send, and waits until the server has executed the rest. c.mu is
// held, and released.
func (c *conn) farewell() (err error) {
	c.err = fmt.Errorf("tcp: connection to %v: %w", c.socket.RemoteAddr(), verbs.ErrClosed)
	closed := c.err
	c.queue = nil
	c.out = (&header{size: headerSize, kind: frameBye}).append(c.out[:0])
	c.push()
	c.kill(closed)
	limit := time.NewTimer(closeLimit)
	defer limit.Stop()
	select {
	case <-c.bye:
	case <-c.unread:
		err = verbs.ErrDisconnected
	case <-limit.C:
		err = verbs.ErrTimeout
	}
	select {
	case <-c.bye: // unread is closed with it
		err = nil
	default:
		c.broke()
		err = fmt.Errorf("tcp: close the connection to %v: its last requests may still take effect: %w", c.socket.RemoteAddr(), err)
	}
	close(c.dead)
	return err
}
