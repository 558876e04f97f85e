//env:real a connection of the machine's network, with its deadlines

package resp

import (
	"errors"
	"os"
	"time"
)

// errRevoked is why a connection ends whose password is not right any more, or whose user may not
// subscribe any more to what it has subscribed to, or monitor.
var errRevoked = errors.New("the password of this connection, or a right to what it has subscribed to, is gone")

// errHalf ends a connection that keeps a buffer for a command that does not come.
const errHalf = protocolError("the rest of the command did not arrive in time")

// read waits for bytes. It returns an error when the connection is over.
func (c *conn) read() error {
	if c.begin > 0 { // what follows is another command
		c.halfUntil = time.Time{}
	}
	c.trim()
	if len(c.in) == cap(c.in) {
		if err := c.grow(); err != nil {
			return err
		}
	}
	for {
		half := len(c.in) > 0
		if err := c.limitRead(half); err != nil {
			return err
		}
		// The flag is set before the deadlines of waiting connections are, so one of the two is
		// seen.
		draining := c.s.core.Draining()
		if draining {
			limit := c.s.drainGrace
			if half { // give the other half a chance
				limit = max(limit, time.Until(c.s.drainUntil()))
			}
			c.readUntil = time.Now().Add(limit)
			if err := c.nc.SetReadDeadline(c.readUntil); err != nil {
				return err
			}
		}
		// As with draining: the users are others before the deadlines are set. A connection
		// whose password is not right any more ends before it reads another command.
		if c.revoked() {
			return errRevoked
		}
		n, err := c.nc.Read(c.in[len(c.in):cap(c.in)])
		if n > 0 {
			c.refuse = draining && !half && c.s.PastDrain()
			c.in = c.in[:len(c.in)+n]
			return nil
		}
		listens := c.sub != nil && !half && !draining // for as long as it likes
		if errors.Is(err, os.ErrDeadlineExceeded) && (listens || time.Now().Before(c.readUntil)) {
			c.readUntil = time.Time{} // woken by Drain or Recheck, which set another one
			continue
		}
		if half && !draining && errors.Is(err, os.ErrDeadlineExceeded) {
			return errHalf
		}
		if err != nil {
			return err
		}
	}
}

// revoked reports whether the connection ends since a right is gone. It takes the rights of now.
func (c *conn) revoked() bool {
	return c.authed() && (!c.login.Renew() || !c.mayGoOnHearing())
}

// limitRead sets the deadline of the next read: the client's silence, or that of half a command. A
// deadline of silence is moved once it is short of the limit: setting one costs more than a small
// read. So a client may be silent for up to a sixteenth longer.
func (c *conn) limitRead(half bool) error {
	now, idle := time.Now(), c.s.limits.Load().Idle
	until := now.Add(idle + idle/16)
	switch {
	case half:
		if c.halfUntil.IsZero() {
			c.halfUntil = now.Add(c.s.writeLimit)
		}
		if c.halfUntil.Before(until) {
			until = c.halfUntil
		}
	case c.readUntil.Sub(now) >= idle && !c.readUntil.After(until): // else the limit was longer
		return nil
	}
	c.readUntil = until
	return c.nc.SetReadDeadline(until)
}

// trim makes room at the end of the read buffer and gives big buffers back. It is called when the
// replies so far are sent.
func (c *conn) trim() {
	rest := len(c.in) - c.begin
	tight, keep := c.s.budget.isTight(), respKeep
	if tight { // so those that are quiet keep half of the budget at most
		keep = respBuffer
	}
	if cap(c.in) > keep && rest <= respBuffer/2 || c.authed() && cap(c.in) < respBuffer {
		c.in = append(make([]byte, 0, respBuffer), c.in[c.begin:]...)
		clear(c.args[:cap(c.args)]) // nothing refers to the former buffer
		c.window.release()
	} else if c.begin > 0 {
		copy(c.in, c.in[c.begin:])
		c.in = c.in[:rest]
	}
	c.begin = 0
	if cap(c.out) > keep {
		c.out = nil
	}
	if tight {
		c.provisional, c.args, c.window = nil, nil, nil
		c.forwards = forwardQueue{}
	}
	c.account.force(holdIn, cap(c.in))
	c.account.force(holdOut, cap(c.out))
	c.account.force(holdLists, cap(c.provisional)*provisionalBytes+cap(c.forwards.ops)*forwardBytes+min(cap(c.args), respArgs)*argBytes+c.window.bytes())
}

// grow doubles the read buffer.
func (c *conn) grow() error {
	more := cap(c.in)
	if err := c.account.set(holdIn, 2*more); err != nil {
		return err
	}
	in := make([]byte, len(c.in), 2*more)
	copy(in, c.in)
	c.in = in
	return nil
}
