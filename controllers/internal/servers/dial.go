package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/pkg/identity"
)

// Limits of calls. A call that a server does not answer must not keep a reconciler from the others.
const (
	callLimit  = 5 * time.Second
	drainLimit = 10 * time.Second
)

// GRPC dials servers over mutual TLS, as the operator. Its certificates are made when needed and
// never stored.
type GRPC struct {
	now func() time.Time

	mu    sync.Mutex
	pairs map[string]issued // by the authority's certificate
	conns map[connKey]*sharedConn
}

type issued struct {
	pair pki.Pair
	at   time.Time
}

// NewGRPC is a dialer.
func NewGRPC() *GRPC {
	return &GRPC{now: time.Now, pairs: map[string]issued{}, conns: map[connKey]*sharedConn{}}
}

func (g *GRPC) dial(t Target) (*sharedConn, error) {
	if t.Authority == nil {
		return nil, fmt.Errorf("dial %s: its certificate authority is not known", t.Pod)
	}
	pair, err := g.pair(t.Authority)
	if err != nil {
		return nil, err
	}
	config, err := t.Authority.ClientConfig(pair, t.Name)
	if err != nil {
		return nil, err
	}
	// By address, not by name: the name of a new pod takes its time to spread. The certificate is
	// still checked for the name.
	key := connKey{t.UID, t.Address, t.Name, string(bytes.Join(t.Authority.Trusted(), nil)), string(pair.Cert)}
	conn, err := g.borrow(key, func(o ...grpc.DialOption) (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///"+t.Address, append(o, grpc.WithTransportCredentials(credentials.NewTLS(config)), grpc.WithNoProxy())...)
	})
	if err != nil {
		return nil, fmt.Errorf("dial %s at %s: %w", t.Pod, t.Address, err)
	}
	return conn, nil
}

// pair is the operator's certificate under an authority, renewed every day. Its age is that by the
// clock on the wall, by which servers judge it: one of a clock that was ahead is renewed as well.
func (g *GRPC) pair(a *pki.Authority) (pki.Pair, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now().Round(0) // without the reading of the monotonic clock
	for ca, i := range g.pairs {
		if now.Before(i.at) || now.Sub(i.at) > 24*time.Hour {
			delete(g.pairs, ca)
		}
	}
	if i, ok := g.pairs[string(a.PEM)]; ok {
		return i.pair, nil
	}
	pair, err := a.Issue(pki.Leaf{Name: "operator", URI: identity.Operator(), Client: true}, now)
	if err != nil {
		return pki.Pair{}, err
	}
	g.pairs[string(a.PEM)] = issued{pair, now}
	return pair, nil
}

// Memory implements Dialer.
func (g *GRPC) Memory(t Target) (Memory, error) {
	conn, err := g.dial(t)
	if err != nil {
		return nil, err
	}
	return &memory{rpcv1.NewMemoryClient(conn), func() { g.giveBack(conn) }, t.Pod}, nil
}

// Compute implements Dialer.
func (g *GRPC) Compute(t Target) (Compute, error) {
	conn, err := g.dial(t)
	if err != nil {
		return nil, err
	}
	return &compute{rpcv1.NewComputeClient(conn), func() { g.giveBack(conn) }, t.Pod}, nil
}

// errUnfit stands for Unfit among what calls know. A server that waits for its node answers every
// call so, and Describe has no other use for the code.
var (
	errUnfit = errors.New("unfit")
	unfit    = map[codes.Code]error{codes.FailedPrecondition: errUnfit}
)

type memory struct {
	client rpcv1.MemoryClient
	done   func()
	pod    string
}

func (m *memory) Close() { m.done() }

// call runs one call with its limit and says in its error what was asked of whom. A code that is in
// known becomes that error.
func call[Q, R any](ctx context.Context, limit time.Duration, pod, what string, f func(context.Context, *Q, ...grpc.CallOption) (*R, error), q *Q, known map[codes.Code]error) (*R, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := f(ctx, q)
	if err == nil {
		return r, nil
	}
	s := status.Convert(err)
	switch k := known[s.Code()]; {
	case k == errUnfit:
		return nil, fmt.Errorf("%s %s: %w", what, pod, &Unfit{s.Message()})
	case errors.Is(err, ErrRefused):
		return nil, fmt.Errorf("%s %s: %w: %s", what, pod, ErrRefused, s.Message())
	case k != nil:
		return nil, fmt.Errorf("%s %s: %w: %s", what, pod, k, s.Message())
	}
	return nil, fmt.Errorf("%s %s: %s: %s", what, pod, s.Code(), s.Message())
}

func (m *memory) Describe(ctx context.Context) (*rpcv1.DescribeMemoryReply, error) {
	return call(ctx, callLimit, m.pod, "describe memory server", m.client.Describe, &rpcv1.DescribeMemoryRequest{}, unfit)
}

func (m *memory) Admit(ctx context.Context, index string, chunks, locks uint64, hostLocks bool) error {
	_, err := call(ctx, callLimit, m.pod, "admit the index to memory server", m.client.Admit,
		&rpcv1.AdmitRequest{Index: index, QuotaChunks: chunks, Locks: locks, HostLocks: hostLocks},
		map[codes.Code]error{codes.ResourceExhausted: ErrNoRoom, codes.FailedPrecondition: ErrInUse})
	return err
}

func (m *memory) Evict(ctx context.Context, index string) error {
	_, err := call(ctx, callLimit, m.pod, "evict the index from memory server", m.client.Evict, &rpcv1.EvictRequest{Index: index}, nil)
	return err
}

func (m *memory) GetMap(ctx context.Context, index string) (*rpcv1.MapReply, error) {
	return call(ctx, callLimit, m.pod, "read the partition map at memory server", m.client.GetMap, &rpcv1.GetMapRequest{Index: index}, nil)
}

func (m *memory) SwapMap(ctx context.Context, index string, expected, generation uint64, encoded []byte) error {
	_, err := call(ctx, callLimit, m.pod, "change the partition map at memory server", m.client.SwapMap,
		&rpcv1.SwapMapRequest{Index: index, ExpectedGeneration: expected, Generation: generation, Map: encoded},
		map[codes.Code]error{codes.Aborted: ErrOtherMap})
	return err
}

func (m *memory) ListClients(ctx context.Context, index string) ([]*rpcv1.ClientUse, error) {
	r, err := call(ctx, callLimit, m.pod, "list the clients at memory server", m.client.ListClients, &rpcv1.ListClientsRequest{Index: index},
		map[codes.Code]error{codes.Unimplemented: ErrNotOffered})
	return r.GetClients(), err
}

func (m *memory) ListHoldings(ctx context.Context, index string) (*rpcv1.ListHoldingsReply, error) {
	return call(ctx, callLimit, m.pod, "list the holdings at memory server", m.client.ListHoldings, &rpcv1.ListHoldingsRequest{Index: index},
		map[codes.Code]error{codes.Unimplemented: ErrNotOffered})
}

func (m *memory) AwaitHoldings(ctx context.Context, index string, seen uint64, limit time.Duration) (uint64, error) {
	r, err := call(ctx, limit+callLimit, m.pod, "wait for other holdings at memory server", m.client.AwaitHoldings,
		&rpcv1.AwaitHoldingsRequest{Index: index, Seen: seen, WaitMilliseconds: uint32(limit.Milliseconds())},
		map[codes.Code]error{codes.Unimplemented: ErrNotOffered})
	return r.GetVersion(), err
}

func (m *memory) JoinServer(ctx context.Context, index string, s *rpcv1.JoinedServer) (rpcv1.JoinedServer_State, error) {
	r, err := call(ctx, callLimit, m.pod, fmt.Sprintf("note that memory server %d joins at memory server", s.GetId()), m.client.JoinServer,
		&rpcv1.JoinServerRequest{Index: index, Server: s},
		map[codes.Code]error{codes.Unimplemented: ErrNotOffered, codes.FailedPrecondition: ErrInUse, codes.NotFound: ErrLeft})
	return r.GetState(), err
}

func (m *memory) ListServers(ctx context.Context, index string) (*rpcv1.ListServersReply, error) {
	return call(ctx, callLimit, m.pod, "list the servers that joined at memory server", m.client.ListServers, &rpcv1.ListServersRequest{Index: index},
		map[codes.Code]error{codes.Unimplemented: ErrNotOffered})
}

func (m *memory) Fence(ctx context.Context, index string, clients []uint32) error {
	_, err := call(ctx, callLimit, m.pod, "fence clients at memory server", m.client.Fence, &rpcv1.FenceRequest{Index: index, Clients: clients}, nil)
	return err
}

type compute struct {
	client rpcv1.ComputeClient
	done   func()
	pod    string
}

func (c *compute) Close() { c.done() }

func (c *compute) Describe(ctx context.Context) (*rpcv1.DescribeComputeReply, error) {
	return call(ctx, callLimit, c.pod, "describe compute server", c.client.Describe, &rpcv1.DescribeComputeRequest{}, unfit)
}

func (c *compute) Drain(ctx context.Context) (uint64, error) {
	r, err := call(ctx, drainLimit+callLimit, c.pod, "drain compute server", c.client.Drain,
		&rpcv1.DrainComputeRequest{LimitMilliseconds: uint32(drainLimit.Milliseconds())}, nil)
	return r.GetUnfinished(), err
}

func (c *compute) Block(ctx context.Context, reason string) error {
	_, err := call(ctx, callLimit, c.pod, "block compute server", c.client.Block, &rpcv1.BlockComputeRequest{Reason: reason}, nil)
	return err
}
