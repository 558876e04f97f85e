package memserver

import (
	"context"
	"errors"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/memserver/internal/core"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// wantCode checks a call's outcome and that its message has the figures that a person needs.
func wantCode(t testing.TB, what string, err error, code codes.Code, parts ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Errorf("%s: %v, want %v", what, err, code)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %q does not say %q", what, err, part)
		}
	}
}

// TestRights makes every call as everybody who could.
func TestRights(t *testing.T) {
	ca, other := identitytest.NewCA(t, "index"), identitytest.NewCA(t, "other")
	c := localConfig(t)
	c.Insecure, c.TLSDir = false, ca.Dir(identitytest.Options{})
	s, _ := start(t, c)
	address := s.Addresses().Control
	operator := admin(t, address, tlsFiles(t, ca, identity.Operator()))
	must(operator.Admit(t.Context(), &rpcv1.AdmitRequest{Index: "mine", QuotaChunks: 1}))
	must(operator.Admit(t.Context(), &rpcv1.AdmitRequest{Index: "mine/2", QuotaChunks: 1}))

	const index = "mine"
	calls := map[string]func(rpcv1.MemoryClient) error{
		"Describe": func(m rpcv1.MemoryClient) error {
			_, err := m.Describe(t.Context(), &rpcv1.DescribeMemoryRequest{})
			return err
		},
		"Admit": func(m rpcv1.MemoryClient) error {
			_, err := m.Admit(t.Context(), &rpcv1.AdmitRequest{Index: index, QuotaChunks: 1})
			return err
		},
		"Evict": func(m rpcv1.MemoryClient) error {
			_, err := m.Evict(t.Context(), &rpcv1.EvictRequest{Index: index + "/never"})
			return err
		},
		"Register": func(m rpcv1.MemoryClient) error {
			_, err := m.Register(t.Context(), &rpcv1.RegisterRequest{Index: index})
			return err
		},
		"Connect": func(m rpcv1.MemoryClient) error {
			_, err := m.Connect(t.Context(), &rpcv1.ConnectRequest{Index: index, Client: 1, Provider: "tcp"})
			return err
		},
		"AllocateChunk and FreeChunk": func(m rpcv1.MemoryClient) error {
			r, err := m.AllocateChunk(t.Context(), &rpcv1.AllocateChunkRequest{Index: index, Client: 1})
			_, err2 := m.FreeChunk(t.Context(), &rpcv1.FreeChunkRequest{Index: index, Client: 1, Offset: r.GetOffset()})
			if err != nil && status.Code(err) != status.Code(err2) {
				t.Errorf("allocate: %v, free: %v", err, err2)
			}
			return err2
		},
		"Renew": func(m rpcv1.MemoryClient) error {
			must(operator.Connect(t.Context(), &rpcv1.ConnectRequest{Index: index, Client: 1, Provider: "tcp"}))
			_, err := m.Renew(t.Context(), &rpcv1.RenewRequest{Index: index, Client: 1})
			return err
		},
		"Fence": func(m rpcv1.MemoryClient) error {
			_, err := m.Fence(t.Context(), &rpcv1.FenceRequest{Index: index, Clients: []uint32{2}})
			return err
		},
		"ListClients": func(m rpcv1.MemoryClient) error {
			_, err := m.ListClients(t.Context(), &rpcv1.ListClientsRequest{Index: index})
			return err
		},
		"GetMap": func(m rpcv1.MemoryClient) error {
			_, err := m.GetMap(t.Context(), &rpcv1.GetMapRequest{Index: index})
			return err
		},
		"SwapMap": func(m rpcv1.MemoryClient) error {
			g, err := operator.GetMap(t.Context(), &rpcv1.GetMapRequest{Index: index})
			if err == nil {
				_, err = m.SwapMap(t.Context(), &rpcv1.SwapMapRequest{Index: index, ExpectedGeneration: g.Generation, Generation: g.Generation + 1})
			}
			return err
		},
		"AcquireRange": func(m rpcv1.MemoryClient) error {
			g := must(operator.GetMap(t.Context(), &rpcv1.GetMapRequest{Index: index}))
			must(operator.Connect(t.Context(), &rpcv1.ConnectRequest{Index: index, Client: 1, Provider: "tcp"}))
			_, err := m.AcquireRange(t.Context(), &rpcv1.AcquireRangeRequest{Index: index, Client: 1, Generation: g.Generation})
			return err
		},
		"SettleRange": func(m rpcv1.MemoryClient) error {
			g := must(operator.GetMap(t.Context(), &rpcv1.GetMapRequest{Index: index}))
			must(operator.Connect(t.Context(), &rpcv1.ConnectRequest{Index: index, Client: 1, Provider: "tcp"}))
			got := must(operator.AcquireRange(t.Context(), &rpcv1.AcquireRangeRequest{Index: index, Client: 1, Generation: g.Generation}))
			_, err := m.SettleRange(t.Context(), &rpcv1.SettleRangeRequest{Index: index, Client: 1, Epoch: got.Own[0].Epoch})
			return err
		},
		"ReleaseRange": func(m rpcv1.MemoryClient) error {
			must(operator.Connect(t.Context(), &rpcv1.ConnectRequest{Index: index, Client: 1, Provider: "tcp"}))
			_, err := m.ReleaseRange(t.Context(), &rpcv1.ReleaseRangeRequest{Index: index, Client: 1})
			return err
		},
		"ListHoldings": func(m rpcv1.MemoryClient) error {
			_, err := m.ListHoldings(t.Context(), &rpcv1.ListHoldingsRequest{Index: index})
			return err
		},
		"AwaitHoldings": func(m rpcv1.MemoryClient) error {
			_, err := m.AwaitHoldings(t.Context(), &rpcv1.AwaitHoldingsRequest{Index: index, Seen: 1, WaitMilliseconds: 1})
			return err
		},
		"Drain": func(m rpcv1.MemoryClient) error {
			_, err := m.Drain(t.Context(), &rpcv1.DrainRequest{})
			return err
		},
	}
	const onlyAny = "Describe"
	onlyAdmin := map[string]bool{"Admit": true, "Evict": true, "SwapMap": true, "AwaitHoldings": true, "Drain": true}
	for _, caller := range []struct {
		name  string
		files *identity.Files
		want  func(call string) codes.Code
	}{
		{"operator", tlsFiles(t, ca, identity.Operator()), func(string) codes.Code { return codes.OK }},
		{"client", tlsFiles(t, ca, identity.Index(index)), func(call string) codes.Code {
			if onlyAdmin[call] {
				return codes.PermissionDenied
			}
			return codes.OK
		}},
		{"compute", tlsFiles(t, ca, identity.Compute(index)), func(call string) codes.Code {
			if onlyAdmin[call] {
				return codes.PermissionDenied
			}
			return codes.OK
		}},
		{"client of the index made anew", tlsFiles(t, ca, identity.Index("mine/2")), func(call string) codes.Code {
			if call == onlyAny {
				return codes.OK
			}
			return codes.PermissionDenied
		}},
		{"no identity", tlsFiles(t, ca, &url.URL{Scheme: "spiffe", Host: "x"}), func(string) codes.Code { return codes.Unavailable }},
		{"another CA", tlsFiles(t, other, identity.Operator()), func(string) codes.Code { return codes.Unavailable }},
		{"without TLS", nil, func(string) codes.Code { return codes.Unavailable }},
	} {
		m := admin(t, address, caller.files)
		for name, call := range calls {
			wantCode(t, caller.name+" calls "+name, call(m), caller.want(name))
		}
	}

	// A client sees its own index only.
	d := must(admin(t, address, tlsFiles(t, ca, identity.Compute(index))).Describe(t.Context(), &rpcv1.DescribeMemoryRequest{}))
	if len(d.Indexes) != 1 || d.Indexes[0].Index != index {
		t.Errorf("a client sees %v", d.Indexes)
	}
}

// TestBadRequests sends what no program should.
func TestBadRequests(t *testing.T) {
	s, _ := start(t, localConfig(t))
	m, ctx := admin(t, s.Addresses().Control, nil), t.Context()
	must(m.Admit(ctx, &rpcv1.AdmitRequest{Index: "a", QuotaChunks: 2, Locks: 8}))
	admit := func(r *rpcv1.AdmitRequest) error { _, err := m.Admit(ctx, r); return err }
	wantCode(t, "no identity", admit(&rpcv1.AdmitRequest{}), codes.InvalidArgument, "1 to 128")
	wantCode(t, "bad identity", admit(&rpcv1.AdmitRequest{Index: "a b"}), codes.InvalidArgument)
	wantCode(t, "odd locks", admit(&rpcv1.AdmitRequest{Index: "b", Locks: 5}), codes.InvalidArgument, "multiple of 4")
	wantCode(t, "too many chunks", admit(&rpcv1.AdmitRequest{Index: "b", QuotaChunks: 6}), codes.ResourceExhausted, "6 chunks", "5 of 7", "1 are missing")
	wantCode(t, "too many locks", admit(&rpcv1.AdmitRequest{Index: "b", Locks: 1 << 20}), codes.ResourceExhausted, "131064 of 131072")
	wantCode(t, "other locks", admit(&rpcv1.AdmitRequest{Index: "a", QuotaChunks: 2, Locks: 16}), codes.FailedPrecondition, "8 locks", "16")

	must(m.AllocateChunk(ctx, &rpcv1.AllocateChunkRequest{Index: "a", Client: 1}))
	must(m.AllocateChunk(ctx, &rpcv1.AllocateChunkRequest{Index: "a", Client: 1}))
	_, err := m.AllocateChunk(ctx, &rpcv1.AllocateChunkRequest{Index: "a", Client: 1})
	wantCode(t, "quota", err, codes.ResourceExhausted, "all 2 chunks")
	wantCode(t, "less than used", admit(&rpcv1.AdmitRequest{Index: "a", QuotaChunks: 1}), codes.FailedPrecondition, "owns 2", "become 1")
	wantCode(t, "more quota", admit(&rpcv1.AdmitRequest{Index: "a", QuotaChunks: 3}), codes.OK)
	_, err = m.AllocateChunk(ctx, &rpcv1.AllocateChunkRequest{Index: "a", Client: 1 << 16})
	wantCode(t, "no client", err, codes.InvalidArgument, "65536")
	_, err = m.AllocateChunk(ctx, &rpcv1.AllocateChunkRequest{Index: "nobody", Client: 1})
	wantCode(t, "unknown index", err, codes.NotFound, "nobody")
	free := func(offset uint64) error {
		_, err := m.FreeChunk(ctx, &rpcv1.FreeChunkRequest{Index: "a", Client: 1, Offset: offset})
		return err
	}
	wantCode(t, "header", free(0), codes.NotFound)
	wantCode(t, "repair records", free(4<<20), codes.NotFound, "0x400000")
	wantCode(t, "inside a chunk", free(6<<20+8), codes.NotFound, "0x600008")
	wantCode(t, "free chunk", free(11<<20), codes.NotFound)
	wantCode(t, "beyond the end", free(15<<20), codes.NotFound)
	wantCode(t, "far beyond the end", free(1<<63), codes.NotFound)
	wantCode(t, "number beyond 32 bits", free((1<<32+1)<<20), codes.NotFound)
	_, err = m.Connect(ctx, &rpcv1.ConnectRequest{Index: "a", Client: 1, Provider: "pigeon"})
	wantCode(t, "unknown provider", err, codes.InvalidArgument, "pigeon")
	_, err = m.SwapMap(ctx, &rpcv1.SwapMapRequest{Index: "a", Generation: 1, Map: make([]byte, ledger.MaxMap+1)})
	wantCode(t, "large map", err, codes.InvalidArgument, "1048577 bytes", "1048576")
	_, err = m.SwapMap(ctx, &rpcv1.SwapMapRequest{Index: "a", Generation: 1, Map: make([]byte, 3*ledger.MaxMap)})
	wantCode(t, "message beyond the limit", err, codes.ResourceExhausted)

	must(m.Drain(ctx, &rpcv1.DrainRequest{On: true}))
	_, err = m.AllocateChunk(ctx, &rpcv1.AllocateChunkRequest{Index: "a", Client: 1})
	wantCode(t, "draining", err, codes.FailedPrecondition, "draining")
	wantCode(t, "new index while draining", admit(&rpcv1.AdmitRequest{Index: "b"}), codes.FailedPrecondition, "draining")
	wantCode(t, "less quota while draining", admit(&rpcv1.AdmitRequest{Index: "a", QuotaChunks: 2}), codes.OK)
	c := client(t, s.Addresses().Control, "a", "tcp", nil)
	if _, err := c.AllocateChunk(7, 1, 1024, false, limit); !errors.Is(err, pool.ErrPoolFull) {
		t.Errorf("a draining server gives the pool %v", err)
	}
	must(m.Drain(ctx, &rpcv1.DrainRequest{}))
	wantCode(t, "quota again", admit(&rpcv1.AdmitRequest{Index: "a", QuotaChunks: 3}), codes.OK)
	must(m.AllocateChunk(ctx, &rpcv1.AllocateChunkRequest{Index: "a", Client: 1}))
}

// TestMaps swaps maps and waits for them.
func TestMaps(t *testing.T) {
	s, stop := start(t, localConfig(t))
	m, ctx := admin(t, s.Addresses().Control, nil), t.Context()
	c := client(t, s.Addresses().Control, "a", "tcp", nil)
	must(c.Admit(0, 0, limit))
	if g, bytes, err := c.Map(0, 0, limit); g != 0 || len(bytes) != 0 || err != nil {
		t.Errorf("before there is a map: %d %q %v", g, bytes, err)
	}
	if err := c.SwapMap(0, 5, []byte("five"), limit); err != nil {
		t.Fatal(err)
	}
	_, err := m.SwapMap(ctx, &rpcv1.SwapMapRequest{Index: "a", ExpectedGeneration: 4, Generation: 6})
	wantCode(t, "stale", err, codes.Aborted, "generation 5", "expected was 4")
	if err := c.SwapMap(4, 6, nil, limit); !errors.Is(err, control.ErrStale) {
		t.Error(err)
	}
	_, err = m.SwapMap(ctx, &rpcv1.SwapMapRequest{Index: "a", ExpectedGeneration: 5, Generation: 5})
	wantCode(t, "same generation", err, codes.InvalidArgument)

	// A wait that is answered at once, one that runs out, one that a swap ends, one that an
	// eviction ends, and one that the end of the server ends.
	if g, bytes, err := c.Map(4, time.Minute, limit); g != 5 || string(bytes) != "five" || err != nil {
		t.Errorf("%d %q %v", g, bytes, err)
	}
	if g, _, err := c.Map(5, 10*time.Millisecond, limit); g != 5 || err != nil {
		t.Errorf("%d %v", g, err)
	}
	type answer struct {
		generation uint64
		err        error
	}
	waitFor := func(newer uint64) chan answer {
		out := make(chan answer, 1)
		go func() {
			g, _, err := c.Map(newer, 30*time.Second, limit)
			out <- answer{g, err}
		}()
		for { // until the call waits in the server
			s.control.waits.mu.Lock()
			n := len(s.control.waits.waiting["a"])
			s.control.waits.mu.Unlock()
			if n == 1 {
				return out
			}
			runtime.Gosched()
		}
	}
	swap := waitFor(5)
	if err := c.SwapMap(5, 6, []byte("six"), limit); err != nil {
		t.Fatal(err)
	}
	if a := <-swap; a.generation != 6 || a.err != nil {
		t.Errorf("after the swap: %+v", a)
	}
	evict := waitFor(6)
	must(m.Evict(ctx, &rpcv1.EvictRequest{Index: "a"}))
	if a := <-evict; !errors.Is(a.err, verbs.ErrRefused) {
		t.Errorf("after the eviction: %+v", a)
	}
	must(c.Admit(0, 0, limit))
	end := waitFor(0)
	stop()
	if a := <-end; a.generation != 0 || a.err != nil {
		t.Errorf("at the server's end: %+v", a)
	}
}

// TestPanic: a handler that panics answers Internal, and the server lives on with the ledger it
// had.
func TestPanic(t *testing.T) {
	s, _ := start(t, localConfig(t))
	a := s.control.Accounts
	_, err := s.control.recovered(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/x/Call"}, func(context.Context, any) (any, error) {
		return nil, a.Change(core.Grow, func(l *ledger.Ledger) error {
			must(l.Admit("half", 1, 0))
			panic("fault")
		})
	})
	wantCode(t, "panic", err, codes.Internal, "fault of the memory server")
	c := client(t, s.Addresses().Control, "half", "tcp", nil)
	if _, err := c.Register(limit); !errors.Is(err, verbs.ErrRefused) {
		t.Errorf("a change that panicked was made: %v", err)
	}
}

func TestHealth(t *testing.T) {
	s, stop := start(t, localConfig(t))
	conn := must(control.Dial(s.Addresses().Control, nil))
	defer conn.Close()
	r := must(healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: "dmindex.rpc.v1.Memory"}))
	if r.Status != healthv1.HealthCheckResponse_SERVING {
		t.Error(r)
	}
	watch := must(healthv1.NewHealthClient(conn).Watch(t.Context(), &healthv1.HealthCheckRequest{Service: "dmindex.rpc.v1.Memory"}))
	if r := must(watch.Recv()); r.Status != healthv1.HealthCheckResponse_SERVING {
		t.Error(r)
	}
	stop()
	if r, err := watch.Recv(); err == nil && r.Status == healthv1.HealthCheckResponse_SERVING {
		t.Error("a server that ended is serving")
	}
}
