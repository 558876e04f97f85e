// Package tcp is the fabric for any cluster: the memory server executes the lists that arrive over
// a TCP connection.
//
// One connection carries all queue pairs of a Conn. Lists of different goroutines that are posted
// at about the same time go out in one system call, and one read of the server may bring many of
// them; see wire.go for the frames, conn.go for who writes when.
//
// # Quiet queue pairs (G3)
//
// Conn.Close says farewell: the server answers once it has executed everything before it, so
// nothing takes effect after Close has returned nil. If the server does not answer within five
// seconds, or the connection broke before, Close returns an error, and requests that are still on
// their way may take effect. The next Connect of the same Device to the same address names such
// connections, and the server ends them before it admits the new one. While a connection says
// farewell, Connect waits for that (hello.Earlier). A client that connects in another way must be
// fenced first (Server.Disconnect).
package tcp

import (
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/hello"
)

// NewDevice makes the client's half. The token crosses the network in clear: it is of no use to who
// reads it, since the server admits it once, but who changes what is underway can take the
// connection over. See NewTLSDevice.
func NewDevice() verbs.Device { return &device{} }

// NewTLSDevice makes the client's half for servers with ServerOptions.TLS. config is asked for each
// connection, by the name that the server's certificate must have, so it may follow files. Nothing
// is sent before the server is verified, and nothing is ever sent in the clear.
func NewTLSDevice(config func(server string) *tls.Config) verbs.Device {
	return &device{tls: config}
}

type device struct {
	tls func(server string) *tls.Config // nil = plain TCP

	earlier hello.Earlier
}

func (*device) Provider() string                        { return "tcp" }
func (*device) NewArena(size int) (*verbs.Arena, error) { return verbs.MapArena(size) }
func (*device) Close() error                            { return nil }

// TakesAnyArena implements verbs.AnyArena.
func (*device) TakesAnyArena() {}

// Connect implements verbs.Device.
func (d *device) Connect(t verbs.Target, limit time.Duration) (verbs.Conn, error) {
	c, err := d.connect(t, limit)
	if err != nil {
		return nil, fmt.Errorf("tcp: connect to %s: %w", t.Address, err)
	}
	return c, nil
}

func (d *device) connect(t verbs.Target, limit time.Duration) (*conn, error) {
	deadline := time.Now().Add(limit)
	if err := d.earlier.Await(t.Address, limit); err != nil {
		return nil, err
	}
	socket, err := d.dial(&t, max(time.Until(deadline), 1))
	if err != nil {
		return nil, hello.StreamError(err)
	}
	named := d.earlier.Broken(t.Address)
	answer, err := greet(socket, &hello.Hello{Token: t.Token, Incarnation: t.Incarnation, Earlier: named}, deadline)
	if err != nil {
		socket.Close()
		return nil, hello.StreamError(errOf(err))
	}
	d.earlier.Ended(t.Address, named)
	keepAlive(socket)
	return newConn(socket, answer, hello.Session{Earlier: &d.earlier, Address: t.Address, ID: answer.Session}), nil
}

// dial opens the stream. TLS shakes hands with the first write, within its deadline.
func (d *device) dial(t *verbs.Target, limit time.Duration) (net.Conn, error) {
	socket, err := net.DialTimeout("tcp", t.Address, limit)
	if err != nil || d.tls == nil {
		return socket, err
	}
	server := t.Server
	if server == "" {
		if server, _, err = net.SplitHostPort(t.Address); err != nil {
			socket.Close()
			return nil, err
		}
	}
	c, err := newSecureClient(socket.(*net.TCPConn), d.tls(server))
	if err != nil {
		socket.Close()
		return nil, err
	}
	return c, nil
}

// greet exchanges the handshake. A server that is full answers without reading, so a failed write
// is not yet the end.
func greet(socket net.Conn, h *hello.Hello, deadline time.Time) (*hello.Answer, error) {
	socket.SetDeadline(deadline)
	_, writeErr := socket.Write(h.Append(nil))
	answer, err := hello.ReadAnswer(socket)
	if err != nil {
		if writeErr != nil {
			err = writeErr
		}
		return nil, err
	}
	if err := answer.Err(h.Incarnation); err != nil {
		return nil, err
	}
	socket.SetDeadline(time.Time{})
	return answer, nil
}
