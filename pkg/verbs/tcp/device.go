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
// connections, and the server ends them before it admits the new one. A client that connects in
// another way must be fenced first (Server.Disconnect).
package tcp

import (
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/hello"
)

// NewDevice makes the client's half. The token crosses the network in clear: it is of no use to who
// reads it, since the server admits it once, but who changes what is underway can take the
// connection over. See NewTLSDevice.
func NewDevice() verbs.Device { return &device{broken: map[string][]uint64{}} }

// NewTLSDevice makes the client's half for servers with ServerOptions.TLS. config is asked for each
// connection, by the name that the server's certificate must have, so it may follow files. Nothing
// is sent before the server is verified, and nothing is ever sent in the clear.
func NewTLSDevice(config func(server string) *tls.Config) verbs.Device {
	return &device{broken: map[string][]uint64{}, tls: config}
}

type device struct {
	tls func(server string) *tls.Config // nil = plain TCP

	mu sync.Mutex
	// by address: sessions that ended without a farewell, at most hello.MaxEarlier
	broken map[string][]uint64
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
	socket, err := d.dial(&t, limit)
	if err != nil {
		return nil, hello.StreamError(err)
	}
	d.mu.Lock()
	earlier := slices.Clone(d.broken[t.Address])
	d.mu.Unlock()
	answer, err := greet(socket, &hello.Hello{Token: t.Token, Incarnation: t.Incarnation, Earlier: earlier}, deadline)
	if err != nil {
		socket.Close()
		return nil, hello.StreamError(errOf(err))
	}
	d.mu.Lock()
	d.broken[t.Address] = slices.DeleteFunc(d.broken[t.Address], func(id uint64) bool { return slices.Contains(earlier, id) })
	d.mu.Unlock()
	keepAlive(socket)
	return newConn(socket, answer, func() { d.remember(t.Address, answer.Session) }), nil
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

// remember notes a session that ended without a farewell. The oldest is forgotten where there are
// too many: the server can hold no more connections than that either.
func (d *device) remember(address string, session uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := append(d.broken[address], session)
	d.broken[address] = list[max(0, len(list)-hello.MaxEarlier):]
}
