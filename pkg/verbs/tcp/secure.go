package tcp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/accept"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TLS. A client of TLS and one in the clear reach a server at the same address. What a connection
// begins with tells them apart: a TLS handshake is a record of type 22, a hello begins with 'd'. So
// a client cannot be led from the one to the other by who answers in the server's place: a client
// of TLS sends nothing, its token least of all, before it has verified the server.
//
// Below TLS lies the same stream as without. Three things are different:
//
//   - A Close closes the socket, and never sends TLS's own farewell, which may wait for a peer that
//     reads nothing. Our frames have a farewell of their own, which TLS protects.
//   - A Write encrypts before it writes, so it cannot stop when the socket takes no more. The
//     client's stream keeps the rest (see spill), so that a poster does not block.
//   - The records have full size from the first on: our writes are as long as they are.

// Protocol is what both sides name in the handshake (ALPN), so that a connection of another port of
// the same certificate is not taken for one of this.
const Protocol = "dmindex-fabric"

// recordTypeHandshake is the first byte of a client of TLS.
const recordTypeHandshake = 22

// tlsBytes is what TLS holds for a connection: the record that arrives, and one that is read ahead.
const tlsBytes = 48 << 10

// begin looks at the first byte of a connection, and shakes hands where that begins TLS. c has a
// deadline. A server without TLS takes the handshake for a hello and refuses it.
func begin(c net.Conn, config *tls.Config) (net.Conn, *tls.ConnectionState, error) {
	t, ok := c.(*net.TCPConn)
	if config == nil || !ok {
		return c, nil, nil
	}
	first, err := peek(t)
	if err != nil || first != recordTypeHandshake {
		return c, nil, err
	}
	s := accept.NewTLS(newStream(t), fullRecords(config))
	if err := s.Handshake(); err != nil {
		return nil, nil, err
	}
	state := s.ConnectionState()
	return s, &state, nil
}

// peek waits for the first byte and leaves it where it is.
func peek(c *net.TCPConn) (byte, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var first [1]byte
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		n, _, err := unix.Recvfrom(int(fd), first[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if err == unix.EAGAIN || err == unix.EINTR {
			return false
		}
		if failed = err; err == nil && n == 0 {
			failed = net.ErrClosed
		}
		return true
	})
	return first[0], errors.Join(err, failed)
}

// fullRecords is config with records of full size from the first on.
func fullRecords(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.DynamicRecordSizingDisabled = true
	if each := config.GetConfigForClient; each != nil {
		config.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			c, err := each(h)
			if c != nil {
				c = c.Clone()
				c.DynamicRecordSizingDisabled = true
			}
			return c, err
		}
	}
	return config
}

// secureClient is the client's end of a connection under TLS.
type secureClient struct {
	*tls.Conn
	spill spill
}

// newSecureClient begins TLS on a socket, which shakes hands with the first Write, within its
// deadline.
func newSecureClient(socket *net.TCPConn, config *tls.Config) (*secureClient, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &secureClient{spill: spill{Conn: newStream(socket), raw: raw}}
	c.spill.try = c.spill.tryWrite
	c.Conn = tls.Client(&c.spill, fullRecords(config))
	return c, nil
}

// Close implements net.Conn. It waits for nothing.
func (c *secureClient) Close() error { return c.spill.Conn.Close() }

// NetConn is the connection below.
func (c *secureClient) NetConn() net.Conn { return c.spill.Conn }

// SyscallConn is that of the socket, to look whether it has ended.
func (c *secureClient) SyscallConn() (syscall.RawConn, error) { return c.spill.raw, nil }

// spill is a stream whose Write sends what the socket takes at once, and keeps the rest. What it
// keeps is bounded by what its writer writes before the rest has been sent: outLimit, and the
// overhead of its records. Safe for concurrent use.
type spill struct {
	net.Conn
	raw syscall.RawConn
	try func(fd uintptr) bool

	// Something was read, and TLS has not asked for more since. It reads ahead: what has arrived,
	// be it the end of the stream, may lie in its buffers, where a look at the socket does not see
	// it.
	ahead atomic.Bool

	mu    sync.Mutex
	buf   []byte // of the Write under way; not written yet
	rest  []byte // kept from earlier ones, to be sent before
	tried error
}

// Read implements net.Conn.
func (s *spill) Read(p []byte) (int, error) {
	s.ahead.Store(false)
	n, err := s.Conn.Read(p)
	s.ahead.Store(n > 0)
	return n, err
}

// Write implements net.Conn.
func (s *spill) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rest) == 0 {
		s.buf = p
		err := s.raw.Write(s.try)
		p, s.buf = s.buf, nil
		if err = errors.Join(err, s.tried); err != nil {
			return 0, err
		}
	}
	n := len(p)
	s.rest = append(s.rest, p...)
	return n, nil
}

func (s *spill) tryWrite(fd uintptr) bool {
	s.tried = nil
	for len(s.buf) > 0 {
		n, err := transferOnce(unix.SYS_WRITE, fd, s.buf)
		switch err {
		case 0:
			s.buf = s.buf[n:]
		case unix.EAGAIN:
			return true
		default:
			s.tried = &net.OpError{Op: "write", Net: "tcp", Err: err}
			return true
		}
	}
	return true
}

// left reports whether there is a rest.
func (s *spill) left() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rest) > 0
}

// drain sends the rest, and waits until the socket has taken it.
func (s *spill) drain() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.rest) > 0 {
		n, err := s.Conn.Write(s.rest)
		s.rest = slices.Delete(s.rest, 0, n)
		if err != nil {
			return err
		}
	}
	if cap(s.rest) > postBuffer {
		s.rest = nil
	}
	return nil
}

// errOf names the error of package verbs for one of TLS that the handshake met; others stay as they
// are.
func errOf(err error) error {
	var record tls.RecordHeaderError
	if errors.As(err, &record) {
		return fmt.Errorf("%w: the memory server does not speak TLS at this address: give its pod an image that does: %w", verbs.ErrRefused, err)
	}
	return err
}
