//env:real connections and their deadlines are of the machine

package mirror

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/dmindex/dmindex/pkg/accept"
	"github.com/dmindex/dmindex/pkg/verbs/tcp"
)

// Protocol is what both sides name in the handshake of TLS (ALPN).
const Protocol = "dmindex-mirror"

const (
	// moment is how long a call waits at most.
	moment = 20 * time.Millisecond

	// takes is how much a Write takes at most, and what may be kept of it.
	takes = 256 << 10
)

// Dial connects to the memory server at an address. With config the connection is under TLS, and
// the certificate of the other side is the one that config asks for.
func Dial(address string, config *tls.Config, limit time.Duration) (Conn, error) {
	deadline := time.Now().Add(limit)
	socket, err := (&net.Dialer{Deadline: deadline}).Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	under := newPatient(socket)
	if config == nil {
		return &conn{Conn: under, under: under}, nil
	}
	config = config.Clone()
	// of full size from the first on
	config.NextProtos, config.DynamicRecordSizingDisabled = []string{Protocol}, true
	c := tls.Client(under, config)
	return handshake(c, c.Handshake, under, deadline)
}

// Accept makes a connection of a socket that was accepted; config is as for Dial, names Protocol
// and asks for a certificate. After an error the socket is closed.
func Accept(socket net.Conn, config *tls.Config, limit time.Duration) (Conn, error) {
	under := newPatient(socket)
	if config == nil {
		return &conn{Conn: under, under: under}, nil
	}
	c := accept.NewTLS(under, config)
	return handshake(c, c.Handshake, under, time.Now().Add(limit))
}

func handshake(c net.Conn, do func() error, under *patient, deadline time.Time) (Conn, error) {
	err := c.SetDeadline(deadline)
	if err == nil {
		err = do()
	}
	if err != nil {
		under.Close()
		return nil, err
	}
	under.ready = true
	return &conn{Conn: c, under: under}, nil
}

// newPatient is what a connection goes over: a socket without calls that wait, and with probes that
// find a machine that is gone within half a minute.
func newPatient(socket net.Conn) *patient {
	if t, ok := socket.(*net.TCPConn); ok {
		t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4})
	}
	return &patient{Conn: tcp.NewStream(socket)}
}

// conn implements Conn over a patient, or over TLS over one.
type conn struct {
	net.Conn
	under     *patient
	readUntil time.Time
}

// Read implements Conn.
func (c *conn) Read(p []byte) (int, error) {
	if _, err := c.under.flush(); err != nil { // nobody else might
		return 0, err
	}
	if err := extend(&c.readUntil, c.Conn.SetReadDeadline); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return n, err
}

// Write implements Conn.
func (c *conn) Write(p []byte) (int, error) {
	if done, err := c.under.flush(); err != nil || !done {
		return 0, err
	}
	if c.Conn == net.Conn(c.under) {
		return c.under.writeSome(p)
	}
	return c.Conn.Write(p[:min(len(p), takes)])
}

// Close implements Conn. TLS's own farewell could wait, so there is none.
func (c *conn) Close() error { return c.under.Close() }

// patient takes what TLS writes at once, and keeps what the socket does not take in time: a Write
// of TLS that fails would end the connection.
type patient struct {
	net.Conn
	ready bool // the handshake is over; before that a Write fails at the deadline

	mu         sync.Mutex // over a Write; TLS may answer what it reads
	rest       []byte
	writeUntil time.Time
}

// writeSome writes as much as finds room.
func (p *patient) writeSome(b []byte) (int, error) {
	if err := extend(&p.writeUntil, p.Conn.SetWriteDeadline); err != nil {
		return 0, err
	}
	n, err := p.Conn.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return n, err
}

// Write implements net.Conn for TLS.
func (p *patient) Write(b []byte) (int, error) {
	if !p.ready {
		return p.Conn.Write(b)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	if len(p.rest) == 0 {
		var err error
		if n, err = p.writeSome(b); err != nil {
			return n, err
		}
	}
	p.rest = append(p.rest, b[n:]...)
	return len(b), nil
}

// flush writes what was kept, and reports whether that is all.
func (p *patient) flush() (all bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.rest) == 0 {
		return true, nil
	}
	n, err := p.writeSome(p.rest)
	p.rest = p.rest[:copy(p.rest, p.rest[n:])]
	return len(p.rest) == 0, err
}

// extend moves a deadline to a moment from now when half of it has gone by: setting one costs more
// than a short write.
func extend(until *time.Time, set func(time.Time) error) error {
	now := time.Now()
	if until.Sub(now) >= moment/2 {
		return nil
	}
	*until = now.Add(moment)
	return set(*until)
}
