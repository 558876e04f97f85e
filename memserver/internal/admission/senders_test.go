package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
)

// slowSender opens a control connection and begins calls whose requests never end: of each, so many
// frames of so many bytes. It returns when the server has received them all, or has ended the
// connection.
func slowSender(t *testing.T, address string, files *identity.Files, calls, frames, size int) (end func()) {
	t.Helper()
	c, err := tls.Dial("tcp", address, files.ClientConfig("localhost", "h2"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	received := make(chan struct{})
	f := http2.NewFramer(c, c)
	go func() {
		defer close(received)
		for {
			frame, err := f.ReadFrame()
			if p, ok := frame.(*http2.PingFrame); err != nil || ok && p.IsAck() {
				return
			}
		}
	}()
	var out bytes.Buffer
	out.WriteString(http2.ClientPreface)
	w := http2.NewFramer(&out, nil)
	w.WriteSettings()
	for i := range calls {
		var h bytes.Buffer
		e := hpack.NewEncoder(&h)
		for _, kv := range [][2]string{
			{":method", "POST"}, {":scheme", "https"}, {":path", rpcv1.Memory_AcquireRange_FullMethodName}, {":authority", "localhost"},
			{"content-type", "application/grpc"}, {"te", "trailers"},
		} {
			e.WriteField(hpack.HeaderField{Name: kv[0], Value: kv[1]})
		}
		id := uint32(2*i + 1)
		w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: h.Bytes(), EndHeaders: true})
		body := make([]byte, frames*size)
		if len(body) > 2 {
			body[2] = 0x0f // of the length of the message: 983,040
		}
		for ; len(body) > 0; body = body[size:] {
			w.WriteData(id, false, body[:size])
		}
	}
	w.WritePing(false, [8]byte{1})
	if _, err := c.Write(out.Bytes()); err == nil {
		<-received
	}
	return func() { c.Close() }
}

// inUse is how many bytes are in use.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools keep for one more collection
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// TestSlowSenders: requests that do not end take a bounded part of the server's memory, in
// whichever frames they come. Their caller's other connections, other indexes and the operator are
// answered meanwhile.
func TestSlowSenders(t *testing.T) {
	for name, sent := range map[string]struct{ frames, size int }{"large frames": {4, 16000}, "frames of a byte": {2000, 1}} {
		t.Run(name, func(t *testing.T) {
			s, ca, mine, _ := slowWorld(t, time.Hour)
			address := s.address
			operator := admin(t, address, tlsFiles(t, ca, identity.Operator()))
			other := admin(t, address, tlsFiles(t, ca, identity.Index("other")))
			client := admin(t, address, mine)
			must(client.Register(t.Context(), &rpcv1.RegisterRequest{Index: "mine"}))
			before := inUse()
			for range 4 {
				slowSender(t, address, mine, 128, sent.frames, sent.size)
			}
			grown := inUse() - before
			t.Logf("%d KiB more than before", grown>>10)
			if limit := int64(12 << 20); grown > limit {
				t.Errorf("requests that do not end take %d bytes", grown)
			}
			must(client.Register(t.Context(), &rpcv1.RegisterRequest{Index: "mine"}))
			must(other.GetMap(t.Context(), &rpcv1.GetMapRequest{Index: "other"}))
			must(operator.SwapMap(t.Context(), &rpcv1.SwapMapRequest{
				Index: "mine", ExpectedGeneration: 1, Generation: 2, Map: make([]byte, 1<<20),
			}))
		})
	}
}

func clientOf(index string) identity.Identity {
	return identity.Identity{Role: identity.RoleClient, Index: index}
}

// requestsOf is what requests under way are charged: to each identity, and to all but the operator.
func requestsOf(s *server) (of map[identity.Identity]int, all int) {
	s.callers.mu.Lock()
	defer s.callers.mu.Unlock()
	of = map[identity.Identity]int{}
	for who, p := range s.callers.mu.of {
		of[who] = p.requests
	}
	return of, s.callers.mu.requests
}

// TestSlowSendersOfManyIndexes: the sum over all identities is bounded too; the identity that has
// most ends connections, and the operator's do not count. All that was charged is settled when the
// connections end.
func TestSlowSendersOfManyIndexes(t *testing.T) {
	ca := identitytest.NewCA(t, "index")
	s := startServer(t, ca, 0)
	address := s.address
	var ends []func()
	few := tlsFiles(t, ca, identity.Index("few"))
	ends = append(ends, slowSender(t, address, few, 1, 1, 1000), slowSender(t, address, tlsFiles(t, ca, identity.Operator()), 20, 3, 16000))
	for i := range 6 {
		files := tlsFiles(t, ca, identity.Index(fmt.Sprint("index", i)))
		for range 3 {
			ends = append(ends, slowSender(t, address, files, 5, 3, 16000)) // 288 KiB
		}
	}
	of, all := requestsOf(s)
	if all > maxRequestsAll || all < maxRequestsAll/2 {
		t.Errorf("%d bytes are charged in all", all)
	}
	if n := of[clientOf("few")]; n == 0 {
		t.Error("the identity that had least lost its request")
	}
	if n := of[everybody]; n < 1<<20 || n > maxRequestsOper {
		t.Errorf("the operator is charged %d bytes", n)
	}
	for _, end := range ends {
		end()
	}
	until(func() bool {
		of, all := requestsOf(s)
		return all == 0 && of[everybody] == 0
	})
}

// TestLargeRequests: only maps are large.
func TestLargeRequests(t *testing.T) {
	s, ca, mine, _ := slowWorld(t, time.Hour)
	client := admin(t, s.address, mine)
	if _, err := client.Register(t.Context(), &rpcv1.RegisterRequest{Index: "mine", Name: strings.Repeat("n", maxRequest)}); status.Code(err) != codes.Internal {
		t.Errorf("a large request: %v", err)
	}
	all := make([]uint32, ledger.MaxLive)
	for i := range all {
		all[i] = ledger.MaxClients - uint32(i)
	}
	largest := &rpcv1.AcquireRangeRequest{
		Index: strings.Repeat("i", ledger.MaxIdentity), Client: ledger.MaxClients, Generation: 1 << 63, Start: make([]byte, ledger.MaxHoldingKey),
		End: make([]byte, ledger.MaxHoldingKey), Log: make([]byte, ledger.MaxLog), Fenced: all,
	}
	if n := proto.Size(largest); n > maxRequest {
		t.Errorf("a legitimate request has %d bytes", n)
	}
	operator := admin(t, s.address, tlsFiles(t, ca, identity.Operator()))
	must(operator.SwapMap(t.Context(), &rpcv1.SwapMapRequest{
		Index: "mine", ExpectedGeneration: 1, Generation: 2, Map: make([]byte, ledger.MaxMap),
	}))
}

// TestCallsOfFormerConnections: a call that goes on when its connection has ended counts, and so
// does what it holds; an identity of which nothing is under way is forgotten.
func TestCallsOfFormerConnections(t *testing.T) {
	c := NewCallers(nil, time.Hour, testLog(t))
	former, call := calling(t, c, clientOf("a"))
	begun, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- call(t.Context(), "Method", nil, func(context.Context, any) (any, error) {
			close(begun)
			<-goOn
			return &rpcv1.FenceReply{}, nil
		})
	}()
	<-begun
	former.Close()
	conn, _ := calling(t, c, clientOf("a"))
	if conn.party.calls.TryAcquire(maxCalls) {
		t.Error("a call of a former connection does not count")
	}
	conn.Close()
	close(goOn)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(c.mu.of) != 0 {
		t.Error("an identity of which nothing is under way is known")
	}
	if err := call(t.Context(), "Method", nil, nil); status.Code(err) != codes.Unavailable {
		t.Errorf("a call of a connection that has ended: %v", err)
	}
}

// TestCallsOfAnIdentity: an identity has so many calls under way, which others do not share.
func TestCallsOfAnIdentity(t *testing.T) {
	s, ca, mine, _ := slowWorld(t, time.Hour)
	client := admin(t, s.address, mine)
	must(client.GetMap(t.Context(), &rpcv1.GetMapRequest{Index: "mine"}))
	s.callers.mu.Lock()
	calls := s.callers.mu.of[clientOf("mine")].calls
	s.callers.mu.Unlock()
	// the end of a call comes after its reply
	until(func() bool { return calls.TryAcquire(maxCalls) })
	if _, err := client.GetMap(t.Context(), &rpcv1.GetMapRequest{Index: "mine"}); status.Code(err) != codes.Unavailable {
		t.Errorf("a call too many: %v", err)
	}
	must(admin(t, s.address, tlsFiles(t, ca, identity.Index("other"))).GetMap(t.Context(), &rpcv1.GetMapRequest{Index: "other"}))
	calls.Release(maxCalls)
	must(client.GetMap(t.Context(), &rpcv1.GetMapRequest{Index: "mine"}))
}
