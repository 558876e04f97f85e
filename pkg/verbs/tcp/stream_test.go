package tcp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestStream: what a socket does not take at once arrives whole, a deadline ends a Read, and the
// end of the other side is io.EOF.
func TestStream(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	s := newStream(client)
	if _, ok := s.(*stream); !ok {
		t.Fatalf("a TCP connection is read by %T", s)
	}
	sent := bytes.Repeat([]byte("0123456789abcde\n"), 1<<20) // 16 MiB: more than the sockets hold
	wrote := make(chan error, 1)
	go func() {
		_, err := s.Write(sent)
		wrote <- err
	}()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(newStream(peer), got); err != nil {
		t.Fatal(err)
	}
	if err := <-wrote; err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("write: %v; arrived as sent: %v", err, bytes.Equal(got, sent))
	}
	s.SetReadDeadline(time.Unix(1, 0))
	if _, err := s.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read past the deadline: %v", err)
	}
	s.SetReadDeadline(time.Time{})
	peer.Close()
	if n, err := s.Read(got); n != 0 || err != io.EOF {
		t.Errorf("read after the end: %d, %v", n, err)
	}
	client.Close()
	var ne net.Error
	if _, err := s.Read(got); !errors.As(err, &ne) {
		t.Errorf("read of a closed connection: %v", err)
	}
	if s := s.(*stream); s.in.buf != nil || s.out.buf != nil {
		t.Error("it keeps the buffer of a call that has returned")
	}
	if _, err := s.Write(sent); !errors.As(err, &ne) {
		t.Errorf("write to a closed connection: %v", err)
	}
}
