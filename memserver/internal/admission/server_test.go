package admission

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"runtime"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
)

func testLog(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func until(is func() bool) {
	for !is() {
		runtime.Gosched()
	}
}

func tlsFiles(t testing.TB, ca *identitytest.CA, uri *url.URL) *identity.Files {
	t.Helper()
	return must(identity.Open(ca.Dir(identitytest.Options{URIs: []*url.URL{uri}})))
}

// admin is a caller of a control service.
func admin(t testing.TB, address string, files *identity.Files) rpcv1.MemoryClient {
	t.Helper()
	conn, err := control.Dial(address, files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return rpcv1.NewMemoryClient(conn)
}

// server is a control port with a service that is no more than its calls.
type server struct {
	address string
	callers *Callers
	memory  *memory
}

// startServer runs a control port until the test ends. limit: see NewCallers.
func startServer(t *testing.T, ca *identitytest.CA, limit time.Duration) *server {
	t.Helper()
	s := &server{
		callers: NewCallers(must(identity.Open(ca.Dir(identitytest.Options{}))), limit, testLog(t)),
		memory:  &memory{maps: map[string]*rpcv1.MapReply{}, changed: make(chan struct{})},
	}
	unary := func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		return next(ctx, request)
	}
	stream := func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		return next(srv, stream)
	}
	g := grpc.NewServer(s.callers.Options(0, time.Minute, Hooks{Count: unary, Recover: unary, RecoverStream: stream})...)
	rpcv1.RegisterMemoryServer(g, s.memory)
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	s.address = l.Addr().String()
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-ended; err != nil {
			t.Errorf("the server ended: %v", err)
		}
	})
	return s
}

// memory is a service of which calls can wait, and have large replies.
type memory struct {
	rpcv1.UnimplementedMemoryServer
	mu      sync.Mutex
	maps    map[string]*rpcv1.MapReply
	changed chan struct{} // closed when a map changes
	clients int           // that ListClients names
}

func (*memory) Register(context.Context, *rpcv1.RegisterRequest) (*rpcv1.RegisterReply, error) {
	return &rpcv1.RegisterReply{}, nil
}

func (*memory) Describe(context.Context, *rpcv1.DescribeMemoryRequest) (*rpcv1.DescribeMemoryReply, error) {
	return &rpcv1.DescribeMemoryReply{}, nil
}

// Connect fails with a message that has what the caller sent.
func (*memory) Connect(_ context.Context, r *rpcv1.ConnectRequest) (*rpcv1.ConnectReply, error) {
	return nil, errors.Join(ledger.ErrInvalid, errors.New(r.Provider))
}

func (m *memory) SwapMap(_ context.Context, r *rpcv1.SwapMapRequest) (*rpcv1.MapReply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.maps[r.Index] = &rpcv1.MapReply{Generation: r.Generation, Map: r.Map}
	close(m.changed)
	m.changed = make(chan struct{})
	return m.maps[r.Index], nil
}

// GetMap waits for a newer map, or the end of the call.
func (m *memory) GetMap(ctx context.Context, r *rpcv1.GetMapRequest) (*rpcv1.MapReply, error) {
	for {
		m.mu.Lock()
		reply, changed := m.maps[r.Index], m.changed
		m.mu.Unlock()
		if reply.GetGeneration() > r.NewerThan {
			return reply, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (m *memory) ListClients(context.Context, *rpcv1.ListClientsRequest) (*rpcv1.ListClientsReply, error) {
	reply := &rpcv1.ListClientsReply{}
	for id := range m.clients {
		reply.Clients = append(reply.Clients, &rpcv1.ClientUse{Client: uint32(id + 1), Fenced: true})
	}
	return reply, nil
}
