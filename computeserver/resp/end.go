//env:real a connection of the machine's network, with its deadlines

package resp

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/tidwall/redcon"

	"github.com/dmindex/dmindex/computeserver/engine"
)

// flush sends the replies. A client that does not take them in time loses its connection.
func (c *conn) flush() error {
	c.dropMuted()
	c.mutedFrom = 0
	c.invalidate()
	if len(c.out) == 0 {
		return nil
	}
	c.account.force(holdOut, cap(c.out))
	err := c.limitWrite()
	if err == nil {
		_, err = c.nc.Write(c.out)
	}
	c.out = c.out[:0]
	if keep := cap(c.out); keep > 2*respKeep || keep > respBuffer && c.s.budget.isTight() {
		c.out = nil
		c.account.force(holdOut, 0)
	}
	if tc := socketOf(c.nc); tc != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		// Replies that it did not take are thrown away at the close. Otherwise the kernel keeps
		// them, and the client, for minutes: neither side's window is open, so nothing would tell
		// the client that the connection is over.
		_ = tc.SetLinger(0)
	}
	return err
}

// limitWrite sets the deadline of the next write, as limitRead does.
func (c *conn) limitWrite() error {
	now := time.Now()
	if c.writeUntil.Sub(now) >= c.s.writeLimit {
		return nil
	}
	c.writeUntil = now.Add(c.s.writeLimit + c.s.writeLimit/16)
	return c.nc.SetWriteDeadline(c.writeUntil)
}

// Bounds of what is still read of a client that was told that its connection ends.
const (
	partLimit = time.Second
	partBytes = 64 << 20
)

// hangUp sends the replies, and why if that is something to tell, and ends the server's half of the
// connection. A close with bytes unread would overtake all that as a reset, so what the client
// sends is read, for a while, until it closes its half. The buffers are given back before.
func (c *conn) hangUp(why error) {
	c.unsubscribeAll()
	var protocol protocolError
	switch {
	case errors.As(why, &protocol):
		c.out = redcon.AppendError(c.out, "ERR "+protocol.Error())
	case errors.Is(why, errBudget):
		c.out = c.appendFailure(c.out, engine.OutcomeOf(why))
	case why != nil:
		return
	}
	socket := socketOf(c.nc)
	if c.flush() != nil || socket == nil || socket.CloseWrite() != nil {
		return
	}
	limit, most := partLimit, int64(partBytes)
	if c.s.core.Draining() {
		limit = c.s.drainGrace
	}
	if !c.authed() {
		most = maxAnonymousBytes
	}
	c.in, c.begin, c.out, c.args, c.window = nil, 0, nil, nil, nil
	c.account.giveBackAll()
	if socket.SetReadDeadline(time.Now().Add(limit)) == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(socket, most))
	}
}

// cut ends the connection. It may be called by any goroutine. The commands that were read and not
// begun are not run.
func (c *conn) cut() {
	c.ended.Store(true)
	_ = c.nc.Close() // ends its reads and writes
}

func (c *conn) end() {
	c.settle()
	c.account.close()
	c.s.forget(c)
	_ = c.nc.Close() // whatever it says, the connection is over
}
