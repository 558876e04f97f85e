package mirror

import (
	"bytes"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestSilentCopy: a source waits no longer than its limit, wherever its copy stops, and its link
// breaks then.
func TestSilentCopy(t *testing.T) {
	const limit = 20 * time.Millisecond
	for name, answers := range map[string]bool{"before its answer": false, "behind it": true} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			over := make(chan struct{})
			defer close(over)
			go func() {
				socket, err := l.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				defer socket.Close()
				c, err := Accept(socket, nil, patience)
				if until := env.Deadline(env.Real(), patience); err == nil && answers {
					if _, err = readHello(env.Real(), c, until); err == nil {
						err = writeAnswer(env.Real(), c, 0, nil, until)
					}
				}
				if err != nil {
					t.Error(err)
				}
				<-over
			}()
			m := newMirrored(t)
			c, err := Dial(l.Addr().String(), nil, patience)
			if err != nil {
				t.Fatal(err)
			}
			err = m.connect(c, limit)
			if answers && err == nil {
				var p verbs.Position
				if p, err = m.change(0, []byte("unanswered")); err == nil {
					err = m.feed.Follow(nil, p, patience)
				}
			}
			if !errors.Is(err, verbs.ErrTimeout) || m.feed.Connected() {
				t.Error(err)
			}
		})
	}
}

// TestCopyTakesNoMore: once a copy takes nothing more, its memory stays, and nobody hears that it
// has what it did not take.
func TestCopyTakesNoMore(t *testing.T) {
	copy, m := newCopy(t, nil), newMirrored(t)
	m.dial(t, copy.address, nil)
	first, err := m.change(0, []byte("first"))
	if err == nil {
		err = m.journal.Wait(nil, first)
	}
	if err != nil {
		t.Fatal(err)
	}
	copy.Close()
	second, err := m.change(0, []byte("second"))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.feed.Follow(nil, second, patience); err == nil {
		t.Error("the copy has what it does not take")
	}
	<-copy.ends
	if copy.Applied() != first || string(copy.memory[:6]) != "first\x00" {
		t.Errorf("the copy is at %d of %d, with %q", copy.Applied(), first, copy.memory[:6])
	}
	c, err := Dial(copy.address, nil, patience)
	if err == nil {
		err = m.connect(c, patience)
	}
	if !errors.Is(err, ErrRefused) {
		t.Errorf("it takes another connection: %v", err)
	}
}

// TestMalformedStream: what is no item ends the connection, and changes nothing.
func TestMalformedStream(t *testing.T) {
	copy := newCopy(t, nil)
	c, err := Dial(copy.address, nil, patience)
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := NewSource(env.Real(), c, hello(), patience)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Send(bytes.Repeat([]byte{0xff}, 64)); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = s.Receive()
	}
	if end := <-copy.ends; !errors.Is(end, verbs.ErrMalformed) || copy.Applied() != 0 {
		t.Errorf("the copy is at %d: %v", copy.Applied(), end)
	}
}

// TestSlowReader: under TLS a Write to somebody who does not read waits a moment at most, and all
// arrives once that reads.
func TestSlowReader(t *testing.T) {
	files := testFiles(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan Conn, 1)
	go func() {
		socket, err := l.Accept()
		if err == nil {
			var c Conn
			if c, err = Accept(socket, files.ServerConfig(Protocol), patience); err == nil {
				accepted <- c
			}
		}
		if err != nil {
			t.Error(err)
			close(accepted)
		}
	}()
	c, err := Dial(l.Addr().String(), files.ClientConfig("localhost"), patience)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	far := <-accepted
	if far == nil {
		return
	}
	defer far.Close()
	sent := 0
	part := func() []byte {
		b := make([]byte, 1<<20)
		for i := range b {
			b[i] = byte((sent + i) * 7 >> 3)
		}
		return b
	}
	for full := false; !full; {
		n, err := c.Write(part())
		if err != nil {
			t.Fatal(err)
		}
		sent += n
		full = n == 0
	}
	got, b := 0, make([]byte, 1<<20)
	for got < sent {
		n, err := far.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if b[i] != byte((got+i)*7>>3) {
				t.Fatalf("byte %d is wrong", got+i)
			}
		}
		got += n
		if _, err := c.Read(nil); err != nil { // sends what was kept
			t.Fatal(err)
		}
	}
}
