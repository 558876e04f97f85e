package shm

import (
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/hello"
	"github.com/dmindex/dmindex/pkg/verbs/internal/mapped"
)

// conn is a verbs.Conn. The regions stay mapped until no request runs and none can start.
type conn struct {
	socket *net.UnixConn
	answer *hello.Answer
	caps   verbs.Capabilities
	mem    []verbs.Memory
	space  *mapped.Space

	mu     sync.Mutex
	err    error // not nil once no queue pair may be made any more
	qps    map[*qp]struct{}
	closed chan struct{} // closed when watch has ended: nothing runs and nothing is mapped

	closeErr error // why something is mapped after all; set before closed is closed
}

func newConn(socket *net.UnixConn, a *hello.Answer, fds []int) (*conn, error) {
	mem, space, err := mapRegions(a.Regions, fds)
	if err != nil {
		return nil, err
	}
	return &conn{
		socket: socket, answer: a, caps: a.Capabilities, mem: mem, space: space,
		qps: map[*qp]struct{}{}, closed: make(chan struct{}),
	}, nil
}

func (c *conn) Capabilities() verbs.Capabilities { return c.caps }
func (c *conn) Incarnation() uint64              { return c.answer.Incarnation }

func (c *conn) Regions() []verbs.Region {
	return append([]verbs.Region(nil), c.answer.Regions...)
}

// NewQP implements verbs.Conn.
func (c *conn) NewQP(a *verbs.Arena) (verbs.QP, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	if len(c.qps) >= int(c.answer.MaxQPs) {
		return nil, fmt.Errorf("shm: connection has %d queue pairs already: %w", len(c.qps), verbs.ErrTooMany)
	}
	cheap := mapped.Asymmetric()
	q := &qp{conn: c, arena: a, space: c.space, cheap: cheap, short: cheap && c.caps.MaskedAtomics}
	c.qps[q] = struct{}{}
	return q, nil
}

// watch waits for the end of the socket's stream, by the server or by Close; then it stops the
// queue pairs, unmaps, and only then closes the socket: that tells the server that nothing of this
// client takes effect any more.
func (c *conn) watch() {
	defer close(c.closed)
	var b [1]byte
	c.socket.Read(b[:])
	c.stop(fmt.Errorf("shm: connection to %v: %w", c.socket.RemoteAddr(), verbs.ErrDisconnected))
	c.mu.Lock()
	qps := c.qps
	c.qps = nil
	c.mu.Unlock()
	if mapped.Asymmetric() {
		mapped.FenceProcess()
	}
	for q := range qps {
		q.drain()
	}
	if err := unmap(c.mem); err != nil {
		c.closeErr = fmt.Errorf("shm: connection to %v: the memory stays mapped, so a fence of this client waits for the end of its process: %w",
			c.socket.RemoteAddr(), err)
	}
	c.socket.Close()
}

// stop lets no request start any more. The first reason counts.
func (c *conn) stop(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = reason
		for q := range c.qps {
			q.kill(reason)
		}
	}
}

// hasEnded reports whether the connection is over, also where watch has not seen it yet.
func (c *conn) hasEnded() bool {
	c.mu.Lock()
	ended := c.err != nil
	c.mu.Unlock()
	raw, err := c.socket.SyscallConn()
	if ended || err != nil {
		return true
	}
	var b [1]byte
	if raw.Control(func(fd uintptr) {
		_, _, err = unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	}) != nil {
		return true
	}
	return err != unix.EAGAIN && err != unix.EINTR
}

// Close implements verbs.Conn.
func (c *conn) Close() error {
	c.stop(fmt.Errorf("shm: connection: %w", verbs.ErrClosed))
	c.socket.CloseRead() // ends the watcher's read
	<-c.closed
	return c.closeErr
}
