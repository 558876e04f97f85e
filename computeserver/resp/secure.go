//env:real connections of the machine's network, and their time

package resp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/dmindex/dmindex/pkg/accept"
)

// TLS is how connections are encrypted.
type TLS struct {
	Config *tls.Config
	// Optional serves clients in the clear, too: what a connection begins with says which it is. It
	// is for the time in which programs change over.
	Optional bool
}

// recordTypeHandshake is the first byte of a client of TLS. No command begins with it.
const recordTypeHandshake = 22

// inTheClear is what a client is told that does not speak TLS.
const inTheClear = "-ERR this port speaks TLS: connect with rediss://, or redis-cli --tls\r\n"

// secured is a connection of a server with TLS. Its first Read shakes hands: so a connection that
// says nothing has cost nothing yet, and has its place in the lobby, as one in the clear has. It
// ends like one: Close closes the socket and waits for nothing, so it may be called under locks.
// One goroutine reads. One at a time writes, after the first Read: it, or one that pushes messages
// while it reads. Deadlines and Close are for any.
type secured struct {
	net.Conn
	how   *TLS
	limit time.Duration // of the handshake

	// Of the goroutine that reads.
	begun bool
	tls   *accept.TLS // nil = in the clear
	first []byte      // of one in the clear, read already
}

// errHandshake is returned when a connection did not begin as it should. It is final, also where
// the reason was a deadline.
var errHandshake = errors.New("no TLS")

// Read implements net.Conn.
func (c *secured) Read(b []byte) (int, error) {
	if !c.begun {
		c.begun = true
		if err := c.begin(); err != nil {
			return 0, err
		}
	}
	if c.tls != nil {
		return c.tls.Read(b)
	}
	if n := copy(b, c.first); n > 0 {
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// begin finds out how the client speaks, and shakes hands.
func (c *secured) begin() error {
	limit := time.AfterFunc(c.limit, func() { c.Conn.Close() })
	defer limit.Stop()
	below := c.Conn
	if c.how.Optional {
		first := make([]byte, 1)
		if _, err := io.ReadFull(c.Conn, first); err != nil {
			return fmt.Errorf("%w: %v", errHandshake, err)
		}
		if first[0] != recordTypeHandshake {
			c.first = first
			return nil
		}
		below = &pushedBack{c.Conn, first}
	}
	c.tls = accept.NewTLS(below, c.how.Config)
	err := c.tls.Handshake()
	if err == nil {
		return nil
	}
	var record tls.RecordHeaderError
	if errors.As(err, &record) && record.Conn != nil {
		c.decline()
	}
	return fmt.Errorf("%w: %v", errHandshake, err)
}

// decline tells a client in the clear what to do. The connection ends in any case, within the limit
// of the handshake. A close with bytes unread would overtake the answer as a reset, so what the
// client sent is read, until it closes.
func (c *secured) decline() {
	if _, err := io.WriteString(c.Conn, inTheClear); err != nil {
		return
	}
	if socket := socketOf(c.Conn); socket != nil && socket.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(socket, maxAnonymousBytes))
	}
}

// Write implements net.Conn. Nothing is written before something was read.
func (c *secured) Write(b []byte) (int, error) {
	switch {
	case !c.begun:
		return 0, errHandshake
	case c.tls != nil:
		return c.tls.Write(b)
	}
	return c.Conn.Write(b)
}

// pushedBack is a connection of which the first byte was read already.
type pushedBack struct {
	net.Conn
	first []byte
}

// Read implements net.Conn.
func (c *pushedBack) Read(b []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// socketOf is the socket of a connection.
func socketOf(c net.Conn) *net.TCPConn {
	switch c := c.(type) {
	case *secured:
		return socketOf(c.Conn)
	case *net.TCPConn:
		return c
	case interface{ NetConn() net.Conn }:
		return socketOf(c.NetConn())
	}
	return nil
}
