package serve

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/hello"
)

// admission admits every token but the zero one; its first byte is the client.
type admission struct{}

func (admission) Admit(t verbs.Token) (verbs.Peer, error) {
	if t == (verbs.Token{}) {
		return verbs.Peer{}, verbs.ErrRefused
	}
	index := "x"
	if t[1] > 0 {
		index = "y"
	}
	return verbs.Peer{Index: index, Client: uint16(t[0])}, nil
}

// slow is a provider whose sessions need time to end after they were cut: each waits for the test.
type slow struct {
	started chan *Session
	release chan struct{}
	running atomic.Int32
}

func (p *slow) provider() Provider {
	return Provider{
		Answer: func(s *Session, answer []byte) error { _, err := s.Conn.Write(answer); return err },
		Run: func(s *Session) {
			p.running.Add(1)
			p.started <- s
			var b [1]byte
			s.Conn.Read(b[:])
			<-p.release
			p.running.Add(-1)
		},
		Cut: func(s *Session) { s.Conn.Close() },
	}
}

func start(t *testing.T, o verbs.ServerOptions) (*Server, *slow, string) {
	t.Helper()
	return startOn(t, o, func(l net.Listener) net.Listener { return l })
}

// startOn serves connections as wrap gives them.
func startOn(t *testing.T, o verbs.ServerOptions, wrap func(net.Listener) net.Listener) (*Server, *slow, string) {
	t.Helper()
	p := &slow{started: make(chan *Session, 8), release: make(chan struct{}, 8)}
	o.Admission = admission{}
	s, err := New(o, p.provider())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(wrap(l)) }()
	t.Cleanup(func() {
		close(p.release)
		s.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve after Close: %v", err)
		}
	})
	return s, p, l.Addr().String()
}

func connect(t *testing.T, address string, h hello.Hello) (net.Conn, *hello.Answer, error) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Write(h.Append(nil)); err != nil {
		t.Fatal(err)
	}
	a, err := hello.ReadAnswer(c)
	return c, a, err
}

// waits checks that f, which runs already, does not end before the session is released, and does
// then.
func waits(t *testing.T, p *slow, ended <-chan int32) {
	t.Helper()
	select {
	case <-ended:
		t.Fatal("did not wait for a session that still runs")
	case <-time.After(20 * time.Millisecond):
		// it could only fail to be caught, never fail without cause
	}
	p.release <- struct{}{}
	if running := <-ended; running != 0 {
		t.Fatalf("%d sessions run at the end", running)
	}
}

func TestDisconnectWaits(t *testing.T) {
	s, p, address := start(t, verbs.ServerOptions{})
	if _, _, err := connect(t, address, hello.Hello{Token: verbs.Token{1}}); err != nil {
		t.Fatal(err)
	}
	<-p.started
	ended := make(chan int32)
	go func() {
		if n := s.Disconnect(func(verbs.Peer) bool { return true }); n != 1 {
			t.Errorf("%d sessions were cut", n)
		}
		ended <- p.running.Load()
	}()
	waits(t, p, ended)
}

func TestCloseWaits(t *testing.T) {
	s, p, address := start(t, verbs.ServerOptions{})
	if _, _, err := connect(t, address, hello.Hello{Token: verbs.Token{1}}); err != nil {
		t.Fatal(err)
	}
	<-p.started
	ended := make(chan int32)
	go func() {
		s.Close()
		ended <- p.running.Load()
	}()
	waits(t, p, ended)
}

// TestEarlierSessionsEnd: the answer to a hello comes only when the sessions that it names have
// ended, those of other peers of the same device included.
func TestEarlierSessionsEnd(t *testing.T) {
	_, p, address := start(t, verbs.ServerOptions{})
	_, mine, err := connect(t, address, hello.Hello{Token: verbs.Token{1}})
	if err != nil {
		t.Fatal(err)
	}
	<-p.started
	_, others, err := connect(t, address, hello.Hello{Token: verbs.Token{2}})
	if err != nil {
		t.Fatal(err)
	}
	<-p.started
	ended := make(chan int32)
	go func() {
		_, a, err := connect(t, address, hello.Hello{Token: verbs.Token{1, 1}, Earlier: []uint64{mine.Session, others.Session, 99}})
		if err != nil || a.Err(0) != nil {
			t.Errorf("the new connection: %+v, %v", a, err)
		}
		<-p.started
		ended <- p.running.Load() - 1 // the new one
	}()
	p.release <- struct{}{} // one of the two
	waits(t, p, ended)
}

// TestSilentClient: a client that says nothing, or half of it, is cut and leaves its place.
func TestSilentClient(t *testing.T) {
	_, _, address := start(t, verbs.ServerOptions{HandshakeLimit: 30 * time.Millisecond, MaxConns: 1})
	whole := (&hello.Hello{Token: verbs.Token{1}}).Append(nil)
	for _, n := range []int{0, 1, 9, 10, len(whole) - 1} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := c.Write(whole[:n]); err != nil {
			t.Fatal(err)
		}
		if a, err := hello.ReadAnswer(c); err == nil && a.Code == hello.OK {
			t.Errorf("%d bytes of a hello are answered with %+v", n, a)
		}
		c.Close()
	}
}

// talking are connections on which a Write waits until something was read, as one over TLS does for
// its handshake.
type talking struct{ net.Listener }

func (l talking) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &talk{Conn: c}, nil
}

type talk struct {
	net.Conn
	heard bool
}

func (c *talk) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.heard = c.heard || n > 0
	return n, err
}

func (c *talk) Write(b []byte) (int, error) {
	if !c.heard {
		if _, err := c.Read(make([]byte, 1)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
}

// TestSilentClientOfAFullServer holds up nobody: those who come after it are told that there are
// too many.
func TestSilentClientOfAFullServer(t *testing.T) {
	_, p, address := startOn(t, verbs.ServerOptions{MaxConns: 1, HandshakeLimit: time.Hour}, func(l net.Listener) net.Listener { return talking{l} })
	if _, _, err := connect(t, address, hello.Hello{Token: verbs.Token{1}}); err != nil {
		t.Fatal(err)
	}
	<-p.started
	for range 3 {
		silent, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		if _, a, err := connect(t, address, hello.Hello{Token: verbs.Token{2}}); err != nil || a.Code != hello.Full {
			t.Errorf("a client of a full server, behind a silent one, is answered with %+v, %v", a, err)
		}
	}
}

// TestSilentClientsTakeNoPlaces: however many connections wait for their admission, a client with a
// token gets in, and of those that wait the server keeps the newest.
func TestSilentClientsTakeNoPlaces(t *testing.T) {
	_, p, address := start(t, verbs.ServerOptions{MaxConns: 3, HandshakeLimit: time.Hour})
	var silent []net.Conn
	for range 10 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(20 * time.Second))
		silent = append(silent, c)
	}
	for id := byte(1); id <= 3; id++ {
		if _, a, err := connect(t, address, hello.Hello{Token: verbs.Token{id}}); err != nil || a.Code != hello.OK {
			t.Fatalf("client %d beside silent connections is answered with %+v, %v", id, a, err)
		}
		<-p.started
	}
	if _, a, err := connect(t, address, hello.Hello{Token: verbs.Token{4}}); err != nil || a.Code != hello.Full {
		t.Errorf("one client more than there are places is answered with %+v, %v", a, err)
	}
	for i, c := range silent[:7] { // the other ones may wait still
		if n, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("silent connection %d of 10 reads %d bytes, %v, want %v", i, n, err, io.EOF)
		}
	}
}

// TestPanicEndsOneConnection: a panic of the code that serves a session is reported, and ends that
// session only.
func TestPanicEndsOneConnection(t *testing.T) {
	var panicked atomic.Int32
	s, err := New(verbs.ServerOptions{Admission: admission{}, Panicked: func(peer verbs.Peer, value any, stack []byte) {
		if peer.Client == 1 && value == "a fault" && len(stack) > 0 {
			panicked.Add(1)
		}
	}}, Provider{
		Answer: func(s *Session, answer []byte) error { _, err := s.Conn.Write(answer); return err },
		Run: func(s *Session) {
			b := make([]byte, 1)
			for s.Conn.SetReadDeadline(time.Now().Add(20*time.Second)) == nil {
				if _, err := s.Conn.Read(b); err != nil {
					return
				}
				if s.Peer.Client == 1 {
					panic("a fault")
				}
				s.Conn.Write(b)
			}
		},
		Cut: func(s *Session) { s.Conn.Close() },
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	defer s.Close()
	bad, _, err := connect(t, l.Addr().String(), hello.Hello{Token: verbs.Token{1}})
	if err != nil {
		t.Fatal(err)
	}
	good, _, err := connect(t, l.Addr().String(), hello.Hello{Token: verbs.Token{2}})
	if err != nil {
		t.Fatal(err)
	}
	bad.Write([]byte{1})
	if _, err := bad.Read(make([]byte, 1)); err == nil {
		t.Error("the connection lives on after a panic of its code")
	}
	good.Write([]byte{1})
	if _, err := good.Read(make([]byte, 1)); err != nil {
		t.Errorf("another connection: %v", err)
	}
	if err := s.Fence(func(p verbs.Peer) bool { return p.Client == 1 }, 20*time.Second); err != nil {
		t.Errorf("fence the client whose session panicked: %v", err)
	}
	if n := panicked.Load(); n != 1 {
		t.Errorf("%d panics were reported, want 1", n)
	}
}

func TestOtherVersionIsAnswered(t *testing.T) {
	_, _, address := start(t, verbs.ServerOptions{})
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	h := (&hello.Hello{Token: verbs.Token{1}}).Append(nil)
	h[8] = 99
	if _, err := c.Write(h); err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(20 * time.Second))
	// of this version, so it can be read; one of version 99 would see the 1 in its start
	a, err := hello.ReadAnswer(c)
	if err != nil || a.Code != hello.BadVersion {
		t.Errorf("a client of version 99 is answered with %+v, %v", a, err)
	}
}

func TestAdmissionIsRequired(t *testing.T) {
	if _, err := New(verbs.ServerOptions{}, Provider{}); err == nil {
		t.Error("a server without Admission can be made")
	}
}

func TestServeAfterClose(t *testing.T) {
	s, _, _ := start(t, verbs.ServerOptions{})
	s.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(l); err != nil {
		t.Errorf("Serve after Close: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is not closed: %v", err)
	}
}
