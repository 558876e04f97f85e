package tcp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// FuzzConnection sends arbitrary bytes on an admitted connection, in portions. The server answers
// with whole frames and ends the connection, and serves another client as before. A server with a
// journal does the same, and its copy is equal then.
func FuzzConnection(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s, uint16(11))
	}
	big := make([]byte, 300<<10) // takes a buffer that connections share
	f.Add(encodeList([]verbs.Request{{Op: verbs.Write, Local: big}}, 5, 6)[:200<<10], uint16(40_000))
	f.Add(encodeList([]verbs.Request{{Op: verbs.Read, Local: big}, {Op: verbs.FetchAdd, Local: big[:8]}}, 5, 6), uint16(9))
	var panicked atomic.Pointer[string]
	tokens := new(verbstest.Tokens)
	o := verbs.ServerOptions{
		Memory: verbstest.Memory(f, 4<<20, 4096), Admission: tokens, Executor: new(echo),
		Panicked: func(_ verbs.Peer, _ any, stack []byte) {
			said := string(stack)
			panicked.CompareAndSwap(nil, &said)
		},
	}
	s, err := NewServer(o)
	if err != nil {
		f.Fatal(err)
	}
	address := listen(f, s)
	o.Memory = verbstest.Memory(f, 4<<20, 4096)
	memory := o.Memory[verbs.RegionData].Bytes
	mirror := verbstest.NewCopy(env.Real(), memory)
	o.Journal = verbs.NewJournal(env.Real(), nil)
	mirror.Join(o.Journal)
	withCopy, err := NewServer(o)
	if err != nil {
		f.Fatal(err)
	}
	mirrored := listen(f, withCopy)
	d := NewDevice()
	arena, err := d.NewArena(1 << 12)
	if err != nil {
		f.Fatal(err)
	}
	defer arena.Close()
	other, err := d.Connect(verbs.Target{Address: address, Token: tokens.Issue(verbs.Peer{Client: 2})}, 20*time.Second)
	if err != nil {
		f.Fatal(err)
	}
	defer other.Close()
	q, err := other.NewQP(arena)
	if err != nil {
		f.Fatal(err)
	}
	b, err := arena.Alloc(16)
	if err != nil {
		f.Fatal(err)
	}
	send := func(t *testing.T, address string, stream []byte, portion uint16) {
		c := rawConn(t, address, tokens)
		sent := make(chan struct{})
		go func() { // the server may take nothing more before its answers are taken
			defer close(sent)
			for rest := stream; len(rest) > 0; {
				n := min(len(rest), int(portion)+1)
				if _, err := c.Write(rest[:n]); err != nil {
					return // the server has ended the connection
				}
				rest = rest[n:]
			}
			c.(*net.TCPConn).CloseWrite()
		}()
		wholeFrames(t, c)
		c.Close()
		<-sent
	}
	f.Fuzz(func(t *testing.T, stream []byte, portion uint16) {
		send(t, address, stream, portion)
		send(t, mirrored, stream, portion)
		// nothing of it takes effect any more
		withCopy.Disconnect(func(verbs.Peer) bool { return true })
		if err := o.Journal.Wait(nil, o.Journal.Last()); err != nil || !mirror.Equal(memory) {
			t.Fatalf("the copy is equal: %v, %v", mirror.Equal(memory), err)
		}
		if stack := panicked.Load(); stack != nil {
			t.Fatal(*stack)
		}
		list := []verbs.Request{{Op: verbs.Write, Remote: 8, Local: b[:8]}, {Op: verbs.Read, Remote: 8, Local: b[8:]}}
		copy(b, "another!")
		if err := verbs.Post(q, list); err != nil || !bytes.Equal(b[8:], b[:8]) {
			t.Fatalf("another client reads %q, %v", b[8:], err)
		}
		call := []verbs.Request{{Op: verbs.Call, Local: b, Args: 3}}
		if err := verbs.Post(q, call); err != nil {
			t.Fatalf("a call of another client: %v", err)
		}
		if got, err := call[0].Answer(); err != nil || string(got) != "ano" {
			t.Fatalf("a call of another client is answered with %q, %v", got, err)
		}
	})
}

// wholeFrames reads frames until the server ends the connection.
func wholeFrames(t *testing.T, c net.Conn) {
	t.Helper()
	in := newInbox(answerBuffer)
	for {
		end := in.fill(c)
		for {
			h, frame, err := in.next()
			if err != nil {
				t.Fatalf("the server sends %+v: %v", h, err)
			}
			if frame == nil {
				break
			}
		}
		var ne net.Error
		switch {
		case end == nil:
		case errors.As(end, &ne) && ne.Timeout():
			t.Fatal("the server does not end the connection")
		case errors.Is(end, io.EOF) && in.end != in.start:
			t.Fatalf("the server ends with %d bytes of a frame", in.end-in.start)
		default:
			return // a reset, where bytes were left that the server did not take
		}
	}
}
