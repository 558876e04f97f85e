package tcp

import (
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

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
		left := c.session.Leave()
		c.closeErr = c.farewell()
		left()
	}
	c.socket.Close()
	c.ended.Wait()
	close(c.closed)
	return c.closeErr
}

// Cut implements verbs.Cutter. A farewell that is under way ends with the socket.
func (c *conn) Cut(why error) { c.fail(fmt.Errorf("%w: %w", verbs.ErrDisconnected, why)) }

// farewell ends the queue pairs, drops what nobody has begun to send, and waits until the server
// has executed the rest. c.mu is held, and released.
func (c *conn) farewell() (err error) {
	c.err = fmt.Errorf("tcp: connection to %v: %w", c.socket.RemoteAddr(), verbs.ErrClosed)
	closed := c.err
	c.queue = nil
	c.out = (&header{size: headerSize, kind: frameBye}).append(c.out[:0])
	c.push(0)
	c.kill(closed)
	c.waiting.Add(1) // for good: for the farewell of the server
	c.delegate()
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
		c.session.Broke()
		err = fmt.Errorf("tcp: close the connection to %v: its last requests may still take effect: %w", c.socket.RemoteAddr(), err)
	}
	close(c.dead)
	return err
}
