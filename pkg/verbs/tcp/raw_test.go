package tcp

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/hello"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// rawServer is a server and how to get at it without the client's half.
func rawServer(t testing.TB) (s verbs.Server, address string, tokens *verbstest.Tokens) {
	t.Helper()
	tokens = new(verbstest.Tokens)
	s, err := NewServer(verbs.ServerOptions{Memory: verbstest.Memory(t, 4<<20, 4096), Admission: tokens, Executor: new(echo)})
	if err != nil {
		t.Fatal(err)
	}
	return s, listen(t, s), tokens
}

// listen lets a server serve on loopback until the test ends.
func listen(t testing.TB, s verbs.Server) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// echo answers calls with their requests and counts them.
type echo struct{ calls atomic.Int64 }

// Call implements verbs.Executor.
func (e *echo) Call(_ verbs.Peer, _ verbs.Near, request, answer []byte) (int, error) {
	e.calls.Add(1)
	return copy(answer, request), nil
}

func rawConn(t testing.TB, address string, tokens *verbstest.Tokens) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	deadline := time.Now().Add(20 * time.Second)
	if _, err := greet(c, &hello.Hello{Token: tokens.Issue(verbs.Peer{Client: 1})}, deadline); err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(deadline)
	return c
}

// answers sends bytes and returns the headers of all frames until the server ends the connection.
func answers(t *testing.T, c net.Conn, send ...[]byte) (list []header) {
	t.Helper()
	for _, b := range send {
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	in := newInbox(answerBuffer)
	for {
		err := in.fill(c)
		for {
			h, frame, e := in.next()
			if e != nil {
				t.Fatalf("the server sends %v", e)
			}
			if frame == nil {
				break
			}
			list = append(list, h)
		}
		if err != nil {
			var ne net.Error
			if errors.As(err, &ne) && ne.Timeout() {
				t.Fatal("the server does not end the connection")
			}
			return list
		}
	}
}

// TestBadFrames: each ends the connection with an error frame, and nothing of the frame takes
// effect; what came before it does.
func TestBadFrames(t *testing.T) {
	_, address, tokens := rawServer(t)
	add := []verbs.Request{{Op: verbs.FetchAdd, Local: make([]byte, 8), Add: 1}}
	count := uint64(0)
	f := func(what string, code uint32, bad []byte) {
		t.Helper()
		good := encodeList(add, 0, 5)
		got := answers(t, rawConn(t, address, tokens), good, bad)
		if len(got) != 2 || got[0].kind != frameList || got[0].seq != 5 || got[1].kind != frameError || got[1].code != code {
			t.Errorf("%s is answered with %+v, want code %d", what, got, code)
		}
		count++
	}
	list := append(add[:1:1], verbs.Request{Op: verbs.Write, Remote: 4 << 20, Local: make([]byte, 8)})
	f("a WRITE behind the end", codeOutOfRange, encodeList(list, 0, 6))
	list[1] = verbs.Request{Op: verbs.Read, Remote: 1<<64 - 8, Local: make([]byte, 100)}
	f("a READ that wraps around", codeOutOfRange, encodeList(list, 0, 6))
	list[1] = verbs.Request{Op: verbs.CompareSwap, Region: verbs.RegionLocks, Remote: 4096, Local: make([]byte, 8)}
	f("a swap behind the end of the lock region", codeOutOfRange, encodeList(list, 0, 6))
	mangle := func(at int, v byte) []byte {
		b := encodeList(add, 0, 6)
		b[at] = v
		return b
	}
	f("an unknown kind of frame", codeMalformed, mangle(6, 77))
	f("a frame that is too short", codeMalformed, mangle(0, 8))
	f("a frame of odd length", codeMalformed, mangle(0, 41))
	f("a frame of 4 GiB", codeMalformed, (&header{size: 1<<32 - 8, kind: frameList, count: 1}).append(nil))
	f("a frame of 100 MB", codeMalformed, (&header{size: 100 << 20, kind: frameList, count: 1}).append(nil))
	f("no requests", codeMalformed, (&header{size: headerSize, kind: frameList}).append(nil))
	f("more requests than there are", codeMalformed, mangle(7, 2))
	f("more requests than allowed", codeMalformed, mangle(7, verbs.MaxList+1))
	f("a queue pair beyond the limit", codeMalformed, mangle(5, 0x80))
	f("a code", codeMalformed, mangle(12, 1))
	f("an unknown kind of request", codeMalformed, mangle(16, byte(verbs.NumOps)))
	f("an unknown region", codeMalformed, mangle(17, 2))
	f("an unknown flag", codeMalformed, mangle(18, 2))
	f("an atomic of 16 bytes", codeMalformed, mangle(20, 16))
	f("an atomic at an odd place", codeMalformed, mangle(24, 4))
	call := func(at int, v byte) []byte {
		b := encodeList([]verbs.Request{{Op: verbs.Call, Local: make([]byte, 16), Args: 9}}, 0, 6)
		b[at] = v
		return b
	}
	f("a call longer than its buffer", codeMalformed, call(32, 17))
	f("a call of 2^56 bytes and more", codeMalformed, call(39, 1))
	f("a call without room for its header", codeMalformed, call(20, 0))
	f("a call with room for too much", codeMalformed, call(22, 2))
	f("a call of a region", codeMalformed, call(17, 1))
	f("a call at a place", codeMalformed, call(24, 8))
	f("a call with a fence", codeMalformed, call(18, 1))
	f("two calls", codeMalformed, encodeList(slices.Repeat([]verbs.Request{{Op: verbs.Call, Local: make([]byte, 16), Args: 9}}, 2), 0, 6))

	c := rawConn(t, address, tokens)
	if _, err := c.Write(encodeList([]verbs.Request{{Op: verbs.Read, Local: make([]byte, 8)}}, 0, 0)); err != nil {
		t.Fatal(err)
	}
	var b [headerSize + 8]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		t.Fatal(err)
	}
	if uint64(b[headerSize]) != count || count > 255 {
		t.Errorf("%d sound lists were sent, %d took effect", count, b[headerSize])
	}
}

// TestHalfAFrame: a client that goes in the middle of a frame applies nothing of it.
func TestHalfAFrame(t *testing.T) {
	s, address, tokens := rawServer(t)
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = 0xff
	}
	frame := encodeList([]verbs.Request{{Op: verbs.Write, Local: block}}, 0, 0)
	for _, n := range []int{10, 100, 70 << 10, len(frame) - 1} {
		c := rawConn(t, address, tokens)
		if _, err := c.Write(frame[:n]); err != nil {
			t.Fatal(err)
		}
		c.Close()
		s.Disconnect(func(verbs.Peer) bool { return true })
		c = rawConn(t, address, tokens)
		if _, err := c.Write(encodeList([]verbs.Request{{Op: verbs.Read, Local: block}}, 0, 0)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, headerSize+len(block))
		if _, err := io.ReadFull(c, got); err != nil {
			t.Fatal(err)
		}
		for i, v := range got[headerSize:] {
			if v != 0 {
				t.Fatalf("%d bytes of a frame of %d changed byte %d", n, len(frame), i)
			}
		}
	}
}

// TestSlowReader: a client that does not take its answers is not read any more, so it cannot make
// the server hold more and more.
func TestSlowReader(t *testing.T) {
	_, address, tokens := rawServer(t)
	c := rawConn(t, address, tokens)
	frame := encodeList([]verbs.Request{{Op: verbs.Read, Local: make([]byte, 1<<20)}}, 0, 0)
	c.SetWriteDeadline(time.Now().Add(time.Second))
	sent := 0
	for sent < 64<<20 {
		n, err := c.Write(frame)
		sent += n
		if err != nil {
			break
		}
	}
	if sent == 64<<20 {
		t.Fatalf("the server took %d bytes of requests whose answers nobody reads", sent)
	}
	// It lives on for everybody else.
	other := rawConn(t, address, tokens)
	bye := (&header{size: headerSize, kind: frameBye}).append(nil)
	if got := answers(t, other, bye); len(got) != 1 || got[0].kind != frameBye {
		t.Errorf("a farewell is answered with %+v", got)
	}
}
