package admission

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/identity"
)

// TestMessagesAreShort: the message of an error is short whatever the caller sent: it is not
// charged.
func TestMessagesAreShort(t *testing.T) {
	s, _, mine, _ := slowWorld(t, time.Hour)
	client := admin(t, s.address, mine)
	_, err := client.Connect(t.Context(), &rpcv1.ConnectRequest{Index: "mine", Client: 1, Provider: strings.Repeat("\x01é", 10_000)})
	if got := status.Convert(err); got.Code() != codes.InvalidArgument || len(got.Message()) > maxMessage {
		t.Errorf("%v with %d bytes", got.Code(), len(got.Message()))
	}
}

// TestSlowReadersOfLists: of a list that its caller does not take, the encoded form is kept and
// nothing else.
func TestSlowReadersOfLists(t *testing.T) {
	s, _, mine, _ := slowWorld(t, time.Hour)
	s.memory.clients = ledger.MaxClients
	request := &rpcv1.ListClientsRequest{Index: "mine"}
	reply := proto.Size(must(s.memory.ListClients(t.Context(), request)))
	before := inUse()
	slowReaderOf(t, s.address, rpcv1.Memory_ListClients_FullMethodName, request, mine, 100)
	until(func() bool { return kept(s) > maxOwed-reply })
	if err := s.callers.building.Acquire(t.Context(), 1); err != nil { // none is being built
		t.Fatal(err)
	}
	grown := inUse() - before
	s.callers.building.Release(1)
	t.Logf("%d KiB more than before, replies of %d", grown>>10, reply)
	if grown > maxOwed+12<<20 {
		t.Errorf("replies that are not read take %d bytes", grown)
	}
}

// calling is a connection of an identity to c, and what calls a handler on it through charged.
func calling(t *testing.T, c *Callers, who identity.Identity) (*connection, func(ctx context.Context, method string, request any, next grpc.UnaryHandler) error) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	c.everybody = &who
	conn, info, err := c.ServerHandshake(ours)
	if err != nil {
		t.Fatal(err)
	}
	return conn.(*connection), func(ctx context.Context, method string, request any, next grpc.UnaryHandler) error {
		_, err := charged(peer.NewContext(ctx, &peer.Peer{AuthInfo: info}), request, &grpc.UnaryServerInfo{FullMethod: method}, next)
		return err
	}
}

// TestLargeRepliesTakeTurns: one large reply is built at a time, of all identities but the
// operator. One that is built and finds no room holds up no other identity; it is built once more
// when there is room.
func TestLargeRepliesTakeTurns(t *testing.T) {
	const method = rpcv1.Memory_ListHoldings_FullMethodName
	c := NewCallers(nil, time.Hour, testLog(t))
	a, callA := calling(t, c, clientOf("a"))
	_, callB := calling(t, c, clientOf("b"))
	_, callOperator := calling(t, c, everybody)
	list := func(context.Context, any) (any, error) { return &rpcv1.MapReply{Map: make([]byte, 1<<20)}, nil }
	begun, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- callA(t.Context(), method, nil, func(ctx context.Context, r any) (any, error) {
			close(begun)
			<-goOn
			return list(ctx, r)
		})
	}()
	<-begun
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	built := false
	err := callB(short, method, nil, func(context.Context, any) (any, error) {
		built = true
		return &rpcv1.MapReply{}, nil
	})
	if err == nil || built {
		t.Error("two large replies are built at once")
	}
	if err := callOperator(t.Context(), method, nil, list); err != nil {
		t.Errorf("the operator: %v", err)
	}
	close(goOn)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}

	rest := maxOwed - 1<<20 // of the room, besides some bytes of an envelope
	if err := a.acquire(t.Context(), method, rest-1024); err != nil {
		t.Fatal(err)
	}
	tries := make(chan struct{}, 2)
	go func() {
		ended <- callA(t.Context(), method, nil, func(ctx context.Context, r any) (any, error) {
			tries <- struct{}{}
			return list(ctx, r)
		})
	}()
	<-tries
	if err := callB(t.Context(), method, nil, list); err != nil {
		t.Errorf("another one: %v", err)
	}
	a.release(rest - 1024)
	<-tries
	if err := <-ended; err != nil {
		t.Errorf("when there is room: %v", err)
	}
	a.Close()
	if !a.party.room.TryAcquire(maxOwed) {
		t.Error("room is lost")
	}
}

// TestLargeRequestsOfAnIdentity: requests whose calls wait are bounded; small ones are not refused.
func TestLargeRequestsOfAnIdentity(t *testing.T) {
	const method = rpcv1.Memory_AcquireRange_FullMethodName
	c := NewCallers(nil, time.Hour, testLog(t))
	conn, call := calling(t, c, clientOf("a"))
	many := make([]uint32, 20_000)
	for i := range many {
		many[i] = 1
	}
	largest := &rpcv1.AcquireRangeRequest{Fenced: many}
	depth, deepest := 0, 0
	var again grpc.UnaryHandler
	again = func(ctx context.Context, _ any) (any, error) {
		depth++
		deepest = max(deepest, depth)
		defer func() { depth-- }()
		return &rpcv1.RegisterReply{}, call(ctx, "Method", largest, again)
	}
	if err := call(t.Context(), "Method", largest, again); status.Code(err) != codes.Unavailable {
		t.Errorf("all have room: %v", err)
	}
	if want := maxHeld / (4 * proto.Size(largest)); deepest != want {
		t.Errorf("%d such calls are under way at once, want %d", deepest, want)
	}
	if !conn.party.held.TryAcquire(maxHeld) {
		t.Fatal("some of it is lost")
	}
	small := &rpcv1.AcquireRangeRequest{Start: make([]byte, 100), End: make([]byte, 100)}
	nothing := func(context.Context, any) (any, error) { return &rpcv1.AcquireRangeReply{}, nil }
	if err := call(t.Context(), method, small, nothing); err != nil {
		t.Errorf("a small one: %v", err)
	}
}
