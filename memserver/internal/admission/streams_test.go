package admission

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/identity"
)

// TestStreamsThatAreNotTaken: streams whose small replies nobody takes are bounded over all
// connections. A connection that has a call or two goes on, as do those of other indexes and of the
// operator.
func TestStreamsThatAreNotTaken(t *testing.T) {
	s, ca, mine, _ := slowWorld(t, time.Hour)
	address := s.address
	few := admin(t, address, mine)
	waited := make(chan error, 1)
	go func() {
		_, err := few.GetMap(t.Context(), &rpcv1.GetMapRequest{Index: "mine", NewerThan: 1, WaitMilliseconds: 30_000})
		waited <- err
	}()
	const conns = maxStreams/128 + 4
	ended := make(chan struct{})
	for range conns {
		end, _ := slowReaderOf(t, address, rpcv1.Memory_Describe_FullMethodName, &rpcv1.DescribeMemoryRequest{}, mine, 128)
		go func() {
			<-end
			ended <- struct{}{}
		}()
	}
	late := time.After(time.Minute)
	for range 4 {
		select {
		case <-ended:
		case <-late:
			t.Fatalf("%d connections hold 128 streams each", conns)
		}
	}
	must(admin(t, address, tlsFiles(t, ca, identity.Index("other"))).GetMap(t.Context(), &rpcv1.GetMapRequest{Index: "other"}))
	operator := admin(t, address, tlsFiles(t, ca, identity.Operator()))
	must(operator.SwapMap(t.Context(), &rpcv1.SwapMapRequest{Index: "mine", ExpectedGeneration: 1, Generation: 2}))
	if err := <-waited; err != nil {
		t.Errorf("a call that waited meanwhile: %v", err)
	}
}

// streamsOf is a connection of an identity to c, and what gRPC would read and write on it.
func streamsOf(t *testing.T, c *Callers, who identity.Identity) *framed {
	t.Helper()
	conn, _ := calling(t, c, who)
	f := &framed{conn: conn}
	f.Framer = http2.NewFramer(&f.bytes, nil)
	f.in([]byte(http2.ClientPreface))
	return f
}

type framed struct {
	*http2.Framer
	bytes bytes.Buffer
	conn  *connection
}

// in lets the connection read b and the frames that were written.
func (f *framed) in(b []byte) error {
	defer f.bytes.Reset()
	return f.conn.received(append(b, f.bytes.Bytes()...))
}

// open opens so many streams, the first with a number, whose requests are complete.
func (f *framed) open(first, n int) {
	for i := range n {
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(first + 2*i), EndHeaders: true, EndStream: true})
	}
	f.in(nil)
}

// TestStreamsOfAllIdentities: where too many streams are open, a connection ends: of the identity
// that has most, the one with most. The operator has room apart. Nothing stays of streams that were
// answered or reset, nor of connections that ended.
func TestStreamsOfAllIdentities(t *testing.T) {
	c := NewCallers(nil, time.Hour, testLog(t))
	var many []*framed
	for range 8 {
		many = append(many, streamsOf(t, c, clientOf("many")))
		many[len(many)-1].open(1, 100)
	}
	one, some, operator := streamsOf(t, c, clientOf("many")), streamsOf(t, c, clientOf("some")), streamsOf(t, c, everybody)
	one.open(1, 1)
	operator.open(1, maxStreams)
	some.open(1, 700)
	count := func(what string, f *framed, want int) {
		t.Helper()
		if n := len(f.conn.streams); n != want {
			t.Errorf("%s: %d streams are open, want %d", what, n, want)
		}
	}
	all := func(want int) {
		t.Helper()
		if c.mu.streams != want {
			t.Errorf("%d streams of all are open, want %d", c.mu.streams, want)
		}
	}
	all(1501)
	other := streamsOf(t, c, clientOf("other"))
	other.open(1, maxStreams-1501)
	all(maxStreams)
	if other.open(1_000_001, 1); other.conn.streams != nil {
		t.Error("the connection with most streams, of the identity that has most, goes on")
	}
	all(1501)
	count("one of an identity that has many", one, 1)
	count("operator", operator, maxStreams)
	if operator.open(1_000_001, 1); operator.conn.streams != nil {
		t.Error("the operator has no bound")
	}

	var answers bytes.Buffer
	w := http2.NewFramer(&answers, nil)
	for id := uint32(1); id < 201; id += 2 { // of which two are reset by the server
		if id < 5 {
			w.WriteRSTStream(id, http2.ErrCodeRefusedStream)
			continue
		}
		w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true})
		w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, EndStream: true})
	}
	many[0].conn.beginWrite(answers.Bytes())
	count("answered", many[0], 0)
	many[0].conn.endWrite()
	many[1].WriteRSTStream(1, http2.ErrCodeCancel)
	many[1].in(nil)
	count("reset by the caller", many[1], 99)
	many[1].conn.beginWrite(nil)
	for range 2 {
		many[1].WriteRSTStream(3, http2.ErrCodeCancel)
		many[1].in(nil)
	}
	count("reset while a Write is under way", many[1], 99)
	many[1].conn.endWrite()
	count("reset, and the Write is over", many[1], 98)
	for _, f := range append(many, one, some) {
		f.conn.Close()
	}
	if all(0); len(c.mu.of) != 2 { // ended ones that gRPC has not closed
		t.Errorf("connections of %d identities stay", len(c.mu.of))
	}
}

// TestFramesThatAreNotRead: a caller that reads nothing may send few frames that are answered, and
// one that reads as many as it likes.
func TestFramesThatAreNotRead(t *testing.T) {
	c := NewCallers(nil, time.Hour, testLog(t))
	settings := make([]http2.Setting, maxFrame/6)
	for i := range settings {
		settings[i] = http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 16}
	}
	for name, send := range map[string]struct {
		frame func(f *framed)
		most  int
	}{
		"settings": {func(f *framed) { f.WriteSettings(settings...) }, maxUnread / (2 * maxFrame)},
		"pings":    {func(f *framed) { f.WritePing(false, [8]byte{}) }, maxUnread / unreadCost},
		"windows":  {func(f *framed) { f.WriteWindowUpdate(0, 1) }, maxUnread / unreadCost},
		"resets":   {func(f *framed) { f.WriteRSTStream(1, http2.ErrCodeCancel) }, maxUnread / unreadCost},
	} {
		f := streamsOf(t, c, identity.Identity{Role: identity.RoleClient, Index: "mine"})
		for range 20 * send.most {
			f.conn.beginWrite(nil)
			send.frame(f)
			err := f.in(nil)
			f.conn.endWrite()
			if err != nil {
				t.Fatalf("%s that are answered: %v", name, err)
			}
		}
		f.conn.beginWrite(nil)
		sent := 0
		for err := error(nil); err == nil; sent++ {
			if send.frame(f); sent > send.most {
				t.Fatalf("%d %s are not answered, and the connection goes on", sent, name)
			}
			err = f.in(nil)
		}
		f.conn.endWrite()
		if sent < send.most/4 {
			t.Errorf("the connection ended after %d %s", sent, name)
		}
	}
}

// TestLargeFrames: only frames of data are large.
func TestLargeFrames(t *testing.T) {
	s, _, mine, _ := slowWorld(t, time.Hour)
	f := func(what string, size int, want bool) {
		t.Helper()
		c, err := tls.Dial("tcp", s.address, mine.ClientConfig("localhost", "h2"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var out bytes.Buffer
		out.WriteString(http2.ClientPreface)
		w := http2.NewFramer(&out, nil)
		w.WriteSettings()
		w.WriteRawFrame(0xaa, 0, 0, make([]byte, size))
		w.WritePing(false, [8]byte{1})
		if _, err := c.Write(out.Bytes()); err != nil && want { // else it may be cut by then
			t.Fatal(err)
		}
		answered := false
		for r := http2.NewFramer(nil, c); !answered; {
			frame, err := r.ReadFrame()
			if err != nil {
				break
			}
			p, ok := frame.(*http2.PingFrame)
			answered = ok && p.IsAck()
		}
		if answered != want {
			t.Errorf("%s: answered: %v, want %v", what, answered, want)
		}
	}
	f("a frame of an unknown kind", maxFrame, true)
	f("a large one", maxFrame+1, false)
}

// TestCallersThatReadNothing: a Write that is not taken ends its connection.
func TestCallersThatReadNothing(t *testing.T) {
	c := NewCallers(nil, 10*time.Millisecond, testLog(t))
	ours, theirs := net.Pipe()
	defer theirs.Close()
	conn, _, err := c.ServerHandshake(ours)
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		_, err := conn.Write([]byte("anything"))
		written <- err
	}()
	select {
	case err := <-written:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a Write that is not taken: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("a Write that is not taken goes on")
	}
	if _, err := theirs.Read(make([]byte, 1)); err == nil {
		t.Error("the connection goes on")
	}
}

// TestManyHeaders: what a call keeps of its headers is bounded, however many there are.
func TestManyHeaders(t *testing.T) {
	s, _, mine, _ := slowWorld(t, time.Hour)
	client := admin(t, s.address, mine)
	for n, want := range map[int]codes.Code{20: codes.OK, 100: codes.Internal} {
		many := metadata.MD{}
		for i := range n {
			many.Append(fmt.Sprintf("%02x", i), "")
		}
		_, err := client.Describe(metadata.NewOutgoingContext(t.Context(), many), &rpcv1.DescribeMemoryRequest{})
		if status.Code(err) != want {
			t.Errorf("%d headers: %v, want %v", n, err, want)
		}
	}
}
