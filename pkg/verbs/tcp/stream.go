package tcp

import (
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// stream reads and writes a socket by system calls of which the scheduler is not told. They never
// wait, so it need not lend the processor to anybody; and being told costs it more than many
// requests cost us, since the first call after a pause wakes the runtime's monitor thread. Waiting
// goes through the poller, with the deadlines of the net.Conn. One goroutine may read while another
// one writes.
type stream struct {
	net.Conn
	raw     syscall.RawConn
	in, out transfer
}

// transfer is the Read or the Write under way.
type transfer struct {
	buf  []byte
	done int
	err  error
	try  func(fd uintptr) bool // moves what can be moved at once; false = wait until more can be
}

// NewStream returns a connection over a socket whose Read and Write cost little beside their system
// calls; other connections it returns as they are. The processor of a goroutine that reads or
// writes is not lent to others before it has to wait. One goroutine may read while another writes.
func NewStream(c net.Conn) net.Conn { return newStream(c) }

// NetConn is the socket.
func (s *stream) NetConn() net.Conn { return s.Conn }

// newStream returns a stream of c; or c itself if that is no socket of its own, as with TLS.
func newStream(c net.Conn) net.Conn {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return c
	}
	s := &stream{Conn: c, raw: raw}
	s.in.try, s.out.try = s.tryRead, s.tryWrite
	return s
}

// Read implements net.Conn.
func (s *stream) Read(p []byte) (int, error) {
	s.in.buf, s.in.done, s.in.err = p, 0, nil
	err := s.raw.Read(s.in.try)
	s.in.buf = nil // it is the caller's again: one that is silent may have given it up
	if err != nil {
		return 0, err
	}
	if s.in.done == 0 && s.in.err == nil && len(p) > 0 {
		return 0, io.EOF
	}
	return s.in.done, s.in.err
}

func (s *stream) tryRead(fd uintptr) bool {
	n, err := transferOnce(unix.SYS_READ, fd, s.in.buf)
	switch err {
	case 0:
		s.in.done = n
	case unix.EAGAIN:
		return false
	default:
		s.in.err = &net.OpError{Op: "read", Net: "tcp", Addr: s.RemoteAddr(), Err: err}
	}
	return true
}

// Write implements net.Conn.
func (s *stream) Write(p []byte) (int, error) {
	s.out.buf, s.out.done, s.out.err = p, 0, nil
	err := s.raw.Write(s.out.try)
	s.out.buf = nil
	if err == nil {
		err = s.out.err
	}
	return s.out.done, err
}

func (s *stream) tryWrite(fd uintptr) bool {
	for s.out.done < len(s.out.buf) {
		n, err := transferOnce(unix.SYS_WRITE, fd, s.out.buf[s.out.done:])
		switch err {
		case 0:
			s.out.done += n
		case unix.EAGAIN:
			return false
		default:
			s.out.err = &net.OpError{Op: "write", Net: "tcp", Addr: s.RemoteAddr(), Err: err}
			return true
		}
	}
	return true
}
