package accept

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
)

// failing is a listener that fails so often before it accepts; below 0 it always fails.
type failing struct {
	net.Listener
	left int
	err  error
}

func (f *failing) Accept() (net.Conn, error) {
	if f.left != 0 {
		f.left--
		return nil, f.err
	}
	return f.Listener.Accept()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestAcceptOutlivesFailures: whatever the listener fails for, a client is accepted afterwards, and
// each row of failures is reported once.
func TestAcceptOutlivesFailures(t *testing.T) {
	for _, cause := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ENETDOWN, syscall.EPERM} {
		l, reports := listen(t), 0
		f := &failing{Listener: l, err: &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", cause)}}
		p := Patiently(f, func(err error) {
			if reports++; !errors.Is(err, cause) {
				t.Errorf("reported: %v", err)
			}
		})
		for row := 1; row <= 2; row++ {
			f.left = 3
			client, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			c, err := p.Accept()
			if err != nil {
				t.Fatalf("%v: %v", cause, err)
			}
			c.Close()
			client.Close()
			if reports != row {
				t.Errorf("%v: %d reports after %d rows of failures", cause, reports, row)
			}
		}
	}
}

// TestCloseEndsAWait: Accept ends with the listener although that fails for ever.
func TestCloseEndsAWait(t *testing.T) {
	p := Patiently(&failing{Listener: listen(t), left: -1, err: syscall.EMFILE}, nil)
	ended := make(chan error)
	go func() {
		_, err := p.Accept()
		ended <- err
	}()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept of a closed listener: %v", err)
	}
	if err := p.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a second Close: %v", err)
	}
}
