package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
)

// slowReader opens a control connection on which it calls GetMap so often, and takes no byte of any
// reply.
func slowReader(t *testing.T, address, index string, files *identity.Files, calls int) (ended <-chan struct{}, end func()) {
	t.Helper()
	return slowReaderOf(t, address, rpcv1.Memory_GetMap_FullMethodName, &rpcv1.GetMapRequest{Index: index}, files, calls)
}

// slowReaderOf is slowReader with any call. The windows of its streams are 0; it answers pings.
func slowReaderOf(t *testing.T, address, method string, request proto.Message, files *identity.Files, calls int) (ended <-chan struct{}, end func()) {
	t.Helper()
	c, err := tls.Dial("tcp", address, files.ClientConfig("localhost", "h2"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	must(c.Write([]byte(http2.ClientPreface)))
	f := http2.NewFramer(c, c)
	for _, err := range []error{f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize}), f.WriteSettingsAck()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	body := must(proto.Marshal(request))
	message := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	for i := range calls {
		var h bytes.Buffer
		e := hpack.NewEncoder(&h)
		for _, kv := range [][2]string{
			{":method", "POST"}, {":scheme", "https"}, {":path", method}, {":authority", "localhost"},
			{"content-type", "application/grpc"}, {"te", "trailers"},
		} {
			e.WriteField(hpack.HeaderField{Name: kv[0], Value: kv[1]})
		}
		id := uint32(2*i + 1)
		err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: h.Bytes(), EndHeaders: true})
		if err = errors.Join(err, f.WriteData(id, true, message)); err != nil {
			t.Fatal(err)
		}
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if p, ok := frame.(*http2.PingFrame); ok && !p.IsAck() {
				f.WritePing(true, p.Data)
			}
		}
	}()
	return over, func() { c.Close() }
}

// slowWorld is a server with an index whose map is a large reply, and the files of a client of it.
func slowWorld(t *testing.T, limit time.Duration) (s *server, ca *identitytest.CA, mine *identity.Files, reply int) {
	t.Helper()
	ca = identitytest.NewCA(t, "index")
	s = startServer(t, ca, limit)
	operator := admin(t, s.address, tlsFiles(t, ca, identity.Operator()))
	for _, index := range []string{"mine", "other"} {
		must(operator.SwapMap(t.Context(), &rpcv1.SwapMapRequest{Index: index, Generation: 1, Map: make([]byte, 1<<20)}))
	}
	reply = proto.Size(must(operator.GetMap(t.Context(), &rpcv1.GetMapRequest{Index: "mine"})))
	if reply < maxOwed/16 || 200*reply < 2*maxOwed {
		t.Fatalf("a reply has %d bytes; that is no large one", reply)
	}
	return s, ca, tlsFiles(t, ca, identity.Index("mine")), reply
}

// owed is how much clients of index mine have not taken.
func owed(s *server) (bytes int) {
	s.callers.mu.Lock()
	defer s.callers.mu.Unlock()
	p := s.callers.mu.of[identity.Identity{Role: identity.RoleClient, Index: "mine"}]
	if p == nil {
		return 0
	}
	left := 0
	for step := maxOwed; step > 0; step /= 2 {
		if p.room.TryAcquire(int64(step)) {
			left += step
		}
	}
	p.room.Release(int64(left))
	return maxOwed - left
}

// kept is how many bytes of replies the server keeps for clients of index mine. Unlike owed it
// takes no room to find out, for want of which a reply that was built would be dropped.
func kept(s *server) (bytes int) {
	s.callers.mu.Lock()
	defer s.callers.mu.Unlock()
	p := s.callers.mu.of[clientOf("mine")]
	if p == nil {
		return 0
	}
	for conn := range p.connections {
		conn.mu.Lock()
		for r := range conn.owed {
			bytes += r.size
		}
		conn.mu.Unlock()
	}
	return bytes
}

// TestSlowReaders: connections that take no reply make the server keep a bounded number of them.
// The operator, other indexes and small calls are answered meanwhile. The room comes back with the
// connections' end.
func TestSlowReaders(t *testing.T) {
	s, ca, mine, reply := slowWorld(t, time.Hour)
	address := s.address
	var close []func()
	for range 2 {
		_, end := slowReader(t, address, "mine", mine, 100)
		close = append(close, end)
	}
	until(func() bool { return kept(s) > maxOwed-reply }) // the next one waits
	operator := admin(t, address, tlsFiles(t, ca, identity.Operator()))
	must(operator.GetMap(t.Context(), &rpcv1.GetMapRequest{Index: "mine"}))
	must(admin(t, address, tlsFiles(t, ca, identity.Index("other"))).GetMap(t.Context(), &rpcv1.GetMapRequest{Index: "other"}))
	client := admin(t, address, mine)
	must(client.Register(t.Context(), &rpcv1.RegisterRequest{Index: "mine"}))
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := client.GetMap(short, &rpcv1.GetMapRequest{Index: "mine"}); err == nil {
		t.Error("a large reply found room")
	}
	for _, end := range close {
		end()
	}
	must(client.GetMap(t.Context(), &rpcv1.GetMapRequest{Index: "mine"}))
	until(func() bool { return owed(s) == 0 })
}

// TestSlowReadersEnd: a connection that does not take a reply within the limit is closed, although
// it answers pings.
func TestSlowReadersEnd(t *testing.T) {
	s, _, mine, _ := slowWorld(t, time.Second)
	ended, _ := slowReader(t, s.address, "mine", mine, 100)
	<-ended
	until(func() bool { return owed(s) == 0 })
}

// TestPlacesOfHandshakes: connections that show no certificate keep nobody out: the one that has
// waited longest ends for a newer one.
func TestPlacesOfHandshakes(t *testing.T) {
	ca := identitytest.NewCA(t, "index")
	s := startServer(t, ca, 0)
	var first net.Conn
	for i := range maxHandshakes + 8 {
		conn := must(net.Dial("tcp", s.address))
		defer conn.Close()
		if i == 0 {
			first = conn
		}
	}
	operator := admin(t, s.address, tlsFiles(t, ca, identity.Operator()))
	must(operator.Describe(t.Context(), &rpcv1.DescribeMemoryRequest{}))
	if n, err := first.Read(make([]byte, 1)); err == nil {
		t.Errorf("the longest wait was answered with %d bytes", n)
	}
	if n := s.callers.lobby.Open(); n > maxHandshakes {
		t.Errorf("%d connections wait", n)
	}
}

// TestConnectionsOfAnIdentity: an identity has so many connections, which others do not share, and
// closed ones count no more.
func TestConnectionsOfAnIdentity(t *testing.T) {
	who := identity.Identity{Role: identity.RoleClient, Index: "mine"}
	c := NewCallers(nil, time.Hour, testLog(t))
	c.everybody = &who
	open := func() (net.Conn, error) {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { ours.Close(); theirs.Close() })
		conn, _, err := c.ServerHandshake(ours)
		return conn, err
	}
	var conns []net.Conn
	for range maxConnections {
		conns = append(conns, must(open()))
	}
	if _, err := open(); err == nil {
		t.Error("one too many is admitted")
	}
	who = identity.Identity{Role: identity.RoleOperator}
	must(open())
	who = identity.Identity{Role: identity.RoleClient, Index: "mine"}
	conns[0].Close()
	conns[0].Close()
	must(open())
	if _, err := open(); err == nil {
		t.Error("a second close counted")
	}
}

// TestConnectionsOfAllIdentities: all identities but the operator have so many connections
// together. The one that has most gives its newest up for those that have few; who has as many as
// it is refused. Nothing stays of refused or closed ones.
func TestConnectionsOfAllIdentities(t *testing.T) {
	c := NewCallers(nil, time.Hour, testLog(t))
	open := func(who identity.Identity) (*connection, net.Conn, error) {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { ours.Close(); theirs.Close() })
		c.everybody = &who
		conn, _, err := c.ServerHandshake(ours)
		if err != nil {
			return nil, theirs, err
		}
		return conn.(*connection), theirs, nil
	}
	var all []*connection
	var ends []net.Conn
	for range maxAll {
		conn, end, err := open(clientOf("a"))
		if err != nil {
			t.Fatal(err)
		}
		all, ends = append(all, conn), append(ends, end)
	}
	for i := range maxAll / 2 {
		conn, _, err := open(clientOf("b"))
		if err != nil {
			t.Fatalf("connection %d of another index: %v", i, err)
		}
		all = append(all, conn)
	}
	if _, err := ends[maxAll-1].Read(make([]byte, 1)); err == nil {
		t.Error("the newest connection of the index that had most goes on")
	}
	for _, index := range []string{"a", "b"} {
		if _, _, err := open(clientOf(index)); err == nil {
			t.Errorf("one more of index %s is admitted", index)
		}
		if n := len(c.mu.of[clientOf(index)].connections); n != maxAll/2 {
			t.Errorf("index %s has %d connections", index, n)
		}
	}
	conn, _, err := open(everybody)
	if err != nil {
		t.Fatal(err)
	}
	for _, conn := range append(all, conn) {
		conn.Close()
	}
	if c.mu.open != 0 || len(c.mu.of) != 0 {
		t.Errorf("%d connections of %d identities stay", c.mu.open, len(c.mu.of))
	}
}

// TestOwedByAll: what all identities but the operator owe is bounded in sum. Who finds no room
// takes none.
func TestOwedByAll(t *testing.T) {
	c := NewCallers(nil, time.Hour, testLog(t))
	open := func(who identity.Identity) *connection {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { ours.Close(); theirs.Close() })
		c.everybody = &who
		conn, _, err := c.ServerHandshake(ours)
		if err != nil {
			t.Fatal(err)
		}
		return conn.(*connection)
	}
	owe := func(ctx context.Context, conn *connection, bytes int) error {
		err := conn.acquire(ctx, "Method", bytes)
		if err == nil {
			_, err = conn.encodeReply("Method", &rpcv1.MapReply{Map: make([]byte, bytes-100)}, bytes)
		}
		return err
	}
	var conns []*connection
	for i := range maxOwedAll / maxOwed {
		conns = append(conns, open(clientOf(string(rune('a'+i)))))
		if err := owe(t.Context(), conns[i], maxOwed); err != nil {
			t.Fatal(err)
		}
	}
	late := open(clientOf("late"))
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if owe(short, late, 1<<20) == nil {
		t.Error("one too many has room")
	}
	if err := owe(t.Context(), open(everybody), maxOwed); err != nil {
		t.Errorf("the operator: %v", err)
	}
	conns[0].Close()
	if err := owe(t.Context(), late, maxOwed); err != nil {
		t.Errorf("after the end of another: %v", err)
	}
}
