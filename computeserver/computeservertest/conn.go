package computeservertest

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// Dial connects.
func Dial(t testing.TB, network, address string) *Conn {
	t.Helper()
	nc, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(2 * time.Minute))
	t.Cleanup(func() { _ = nc.Close() })
	return &Conn{t, nc}
}

// Conn is a connection on which bytes go back and forth as they are.
type Conn struct {
	T  testing.TB
	NC net.Conn
}

// Send sends s as it is.
func (r *Conn) Send(s string) {
	r.T.Helper()
	if _, err := r.NC.Write([]byte(s)); err != nil {
		r.T.Fatal(err)
	}
}

// Expect reads exactly want.
func (r *Conn) Expect(want string) {
	r.T.Helper()
	got := make([]byte, 0, len(want))
	for len(got) < len(want) {
		n, err := r.NC.Read(got[len(got):cap(got)])
		got = got[:len(got)+n]
		if !strings.HasPrefix(want, string(got)) || err != nil {
			r.T.Fatalf("got %q, want %q (%v)", got, want, err)
		}
	}
}

// ExpectEnd reads until the server ends the connection, and returns what came before.
func (r *Conn) ExpectEnd() string {
	r.T.Helper()
	var b strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := r.NC.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				r.T.Fatalf("the connection was not ended; it sent %q", b.String())
			}
			return b.String()
		}
	}
}

// resp is a command as clients send it.
func Command(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

// ExpectAny fills b, whatever comes.
func (r *Conn) ExpectAny(b []byte) {
	r.T.Helper()
	if _, err := io.ReadFull(r.NC, b); err != nil {
		r.T.Fatal(err)
	}
}

// Line reads up to the end of a line.
func (r *Conn) Line() string {
	r.T.Helper()
	var b []byte
	for one := make([]byte, 1); !strings.HasSuffix(string(b), "\r\n"); b = append(b, one...) {
		r.ExpectAny(one)
	}
	return string(b)
}

// SkipReply reads one reply, whatever it is, and returns its first line.
func (r *Conn) SkipReply() string {
	r.T.Helper()
	head := r.Line()
	var n int
	switch _, _ = fmt.Sscanf(head[1:], "%d", &n); head[0] {
	case '*':
		for range n {
			r.SkipReply()
		}
	case '$':
		if n >= 0 {
			r.ExpectAny(make([]byte, n+2))
		}
	}
	return head
}

// Again is another connection to where r leads.
func (r *Conn) Again() *Conn {
	r.T.Helper()
	_ = r.NC.Close()
	address := r.NC.RemoteAddr()
	return Dial(r.T, address.Network(), address.String())
}
