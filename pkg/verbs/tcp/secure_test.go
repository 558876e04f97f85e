package tcp

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/accept"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/hello"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// wire lies between clients and a server, and keeps what passes.
type wire struct {
	to string

	mu   sync.Mutex
	seen []byte
}

// tap makes a wire to address.
func tap(t *testing.T, to string) (w *wire, address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w = &wire{to: to}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { w.carry(c) })
		}
	})
	t.Cleanup(func() { l.Close(); running.Wait() })
	return w, l.Addr().String()
}

func (w *wire) carry(c net.Conn) {
	defer c.Close()
	s, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer s.Close()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
		both.Go(func() {
			io.Copy(way[1], io.TeeReader(way[0], w))
			way[1].(*net.TCPConn).CloseWrite()
		})
	}
	both.Wait()
}

// Write implements io.Writer.
func (w *wire) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, b...)
	return len(b), nil
}

func (w *wire) shows(b []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Contains(w.seen, b)
}

func anyServer(server string) *tls.Config {
	return &tls.Config{ServerName: server, InsecureSkipVerify: true}
}

// tlsServer is a server with TLS for those who ask for it.
func tlsServer(t *testing.T, o verbs.ServerOptions) (s verbs.Server, address string, tokens *verbstest.Tokens) {
	t.Helper()
	tokens = new(verbstest.Tokens)
	o.Memory, o.Admission, o.TLS = verbstest.Memory(t, 4<<20, 4096), tokens, benchTLS()
	s, err := NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	return s, listen(t, s), tokens
}

// TestOneAddress: clients of TLS and others share an address and the memory. Of what the first ones
// say nothing can be read on the way: no token, no byte that they write or read.
func TestOneAddress(t *testing.T) {
	_, address, tokens := tlsServer(t, verbs.ServerOptions{})
	w, tapped := tap(t, address)
	secret := bytes.Repeat([]byte("canary: nobody is to read this. "), 1000)
	for _, f := range []struct {
		device  verbs.Device
		op      verbs.Op
		visible bool
	}{{NewTLSDevice(anyServer), verbs.Write, false}, {NewTLSDevice(anyServer), verbs.Read, false}, {NewDevice(), verbs.Read, true}} {
		token := tokens.Issue(verbs.Peer{Client: 1})
		c, err := f.device.Connect(verbs.Target{Address: tapped, Token: token}, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		a, err := f.device.NewArena(1 << 16)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		q, err := c.NewQP(a)
		if err != nil {
			t.Fatal(err)
		}
		local, err := a.Alloc(len(secret))
		if err != nil {
			t.Fatal(err)
		}
		if f.op == verbs.Write {
			copy(local, secret)
		}
		if err := verbs.Post(q, []verbs.Request{{Op: f.op, Local: local, Remote: 64}}); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if !bytes.Equal(local, secret) {
			t.Errorf("%v: other bytes came", f.op)
		}
		if got := w.shows(secret[:32]); got != f.visible {
			t.Errorf("%v: the bytes can be read on the way: %v", f.op, got)
		}
		if got := w.shows(token[:]); got != f.visible {
			t.Errorf("%v: the token can be read on the way: %v", f.op, got)
		}
	}
}

// TestNotTalkedDown: a client of TLS sends nothing of its own to a server that has none.
func TestNotTalkedDown(t *testing.T) {
	_, address, tokens := rawServer(t)
	w, tapped := tap(t, address)
	token := tokens.Issue(verbs.Peer{Client: 1})
	_, err := NewTLSDevice(anyServer).Connect(verbs.Target{Address: tapped, Token: token}, 20*time.Second)
	if !errors.Is(err, verbs.ErrRefused) {
		t.Errorf("connect: %v", err)
	}
	if w.shows(token[:]) {
		t.Error("the token was sent in the clear")
	}
}

// TestHandshakesAreBounded: whoever begins TLS has the time, the places and the bytes of those who
// have shown no token.
func TestHandshakesAreBounded(t *testing.T) {
	ends := func(t *testing.T, c net.Conn) {
		t.Helper()
		c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the connection stays")
		}
	}
	dial := func(t *testing.T, address string, send []byte) net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := c.Write(send); err != nil {
			t.Fatal(err)
		}
		return c
	}
	begun := []byte{recordTypeHandshake, 3, 1, 2, 0} // 512 bytes follow
	t.Run("Time", func(t *testing.T) {
		_, address, _ := tlsServer(t, verbs.ServerOptions{HandshakeLimit: 50 * time.Millisecond})
		ends(t, dial(t, address, begun))
		ends(t, dial(t, address, nil))
		silent, err := tls.Dial("tcp", address, anyServer(""))
		if err != nil {
			t.Fatal(err)
		}
		ends(t, silent) // the limit is of handshake and hello together
	})
	t.Run("Places", func(t *testing.T) {
		_, address, _ := tlsServer(t, verbs.ServerOptions{HandshakeLimit: time.Hour, MaxConns: 2})
		first := dial(t, address, begun)
		dial(t, address, begun)
		dial(t, address, begun)
		ends(t, first)
	})
	t.Run("Bytes", func(t *testing.T) {
		ours, theirs := tcpPair(t)
		counted := &counting{Conn: ours}
		config := benchTLS()
		config.ClientAuth = tls.RequireAnyClientCert
		s := accept.NewTLS(counted, config)
		long := benchTLS().Certificates
		long[0].Certificate = append(long[0].Certificate, make([]byte, 200<<10))
		client := tls.Client(theirs, &tls.Config{InsecureSkipVerify: true, Certificates: long})
		go client.Handshake()
		if err := s.Handshake(); !errors.Is(err, accept.ErrRation) || counted.read > accept.MaxHandshake {
			t.Errorf("a long handshake: %d bytes are read: %v", counted.read, err)
		}
	})
}

// TestCutTLS: a session ends at once whose client takes nothing: TLS does not say goodbye to it.
func TestCutTLS(t *testing.T) {
	s, address, tokens := tlsServer(t, verbs.ServerOptions{})
	d := NewTLSDevice(anyServer).(*device)
	c, err := d.dial(&verbs.Target{Address: address}, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	h := &hello.Hello{Token: tokens.Issue(verbs.Peer{Client: 1})}
	if _, err := greet(c, h, time.Now().Add(20*time.Second)); err != nil {
		t.Fatal(err)
	}
	read := []verbs.Request{{Op: verbs.Read, Local: make([]byte, verbs.MaxTransfer)}}
	head := header{kind: frameList, count: 1, size: uint32(headerSize + requestBytes(verbs.Read, 0))}
	frames := appendRequest(head.append(nil), &read[0])
	go func() {
		for range 1000 {
			if _, err := c.Write(frames); err != nil {
				return
			}
		}
	}()
	// the socket's buffers are full when the server asks for a large one, to send what it cannot
	began := time.Now()
	if n := s.Disconnect(func(verbs.Peer) bool { return true }); n != 1 {
		t.Errorf("%d sessions were cut", n)
	}
	if took := time.Since(began); took > 3*time.Second { // TLS's own goodbye waits 5 s
		t.Errorf("cutting took %v", took)
	}
}

// counting counts what is read from a connection.
type counting struct {
	net.Conn
	read int
}

// Read implements net.Conn.
func (c *counting) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read += n
	return n, err
}

// tcpPair is a connection, both ends of it.
func tcpPair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}
