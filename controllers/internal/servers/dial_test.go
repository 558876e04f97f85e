package servers

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/memserver"
	"github.com/dmindex/dmindex/pkg/identity"
)

// memoryServer runs a real memory server with certificates as the operator makes them.
func memoryServer(t *testing.T, a *pki.Authority) (address string) {
	t.Helper()
	dir := t.TempDir()
	pair, err := a.Issue(pki.Leaf{Name: "memory", DNS: []string{"*.pool.ns.svc"}, Server: true}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{identity.CertFile: pair.Cert, identity.KeyFile: pair.Key, identity.CAFile: a.PEM} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server, err := memserver.New(memserver.Config{ID: 1, MemoryBytes: 16 << 20, ChunkBytes: 1 << 20, Control: "127.0.0.1:0", Fabric: "127.0.0.1:0", TLSDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return server.Addresses().Control
}

func newAuthority(t *testing.T) *pki.Authority {
	t.Helper()
	pair, err := pki.NewAuthority("test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	a, err := pki.ParseAuthority(pair)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestMemoryServer: the operator's calls, against a real memory server, over real certificates.
func TestMemoryServer(t *testing.T) {
	a := newAuthority(t)
	address := memoryServer(t, a)
	target := Target{Namespace: "ns", Pod: "pool-0", UID: "u", Address: address, Name: "pool-0.pool.ns.svc", Authority: a}
	m, err := NewGRPC().Memory(target)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ctx := t.Context()
	described, err := m.Describe(ctx)
	if err != nil || described.Incarnation == 0 || described.ChunksTotal == 0 {
		t.Fatalf("describe: %v, %v", described, err)
	}
	const uid = "6f1c7a52-0000-4000-8000-000000000001"
	if err := m.Admit(ctx, uid, described.ChunksTotal+1, 0, false); !errors.Is(err, ErrNoRoom) {
		t.Errorf("too large a quota: %v", err)
	}
	for range 2 { // it can be repeated
		if err := m.Admit(ctx, uid+"/1", described.ChunksTotal, 0, false); err != nil {
			t.Fatal(err)
		}
	}
	if reply, err := m.GetMap(ctx, uid+"/1"); err != nil || reply.Generation != 0 {
		t.Errorf("no map yet: %v, %v", reply, err)
	}
	if err := m.SwapMap(ctx, uid+"/1", 0, 1, []byte("map")); err != nil {
		t.Error(err)
	}
	if err := m.SwapMap(ctx, uid+"/1", 0, 1, []byte("other")); !errors.Is(err, ErrOtherMap) {
		t.Errorf("an old generation: %v", err)
	}
	for range 2 { // it can be repeated, and clients that nobody registered can be fenced
		if err := m.Fence(ctx, uid+"/1", []uint32{7}); err != nil {
			t.Error(err)
		}
	}
	if clients, err := m.ListClients(ctx, uid+"/1"); err != nil || len(clients) != 1 || clients[0].Client != 7 || !clients[0].Fenced {
		t.Errorf("after fencing client 7: %v, %v", clients, err)
	}
	if reply, err := m.GetMap(ctx, uid+"/1"); err != nil || reply.Generation != 1 || string(reply.Map) != "map" {
		t.Errorf("map: %v, %v", reply, err)
	}
	list, err := m.ListHoldings(ctx, uid+"/1")
	if err != nil || list.Version == 0 || len(list.Holdings) != 0 {
		t.Fatalf("holdings: %v, %v", list, err)
	}
	// A wait that runs out, and one that is answered at once.
	for _, seen := range []uint64{list.Version, list.Version + 1} {
		if version, err := m.AwaitHoldings(ctx, uid+"/1", seen, 10*time.Millisecond); err != nil || version != list.Version {
			t.Errorf("version %d is known: %d, %v", seen, version, err)
		}
	}
	if described, err = m.Describe(ctx); err != nil || len(described.Indexes) != 1 || described.Indexes[0].Index != uid+"/1" || described.ChunksGranted != described.ChunksTotal {
		t.Errorf("describe: %v, %v", described, err)
	}
	for range 2 {
		if err := m.Evict(ctx, uid+"/1"); err != nil {
			t.Error(err)
		}
	}
}

// TestOtherServer: a server of another name or authority is not spoken to, and the error says
// which.
func TestOtherServer(t *testing.T) {
	a := newAuthority(t)
	address := memoryServer(t, a)
	f := func(name string, authority *pki.Authority) {
		t.Helper()
		m, err := NewGRPC().Memory(Target{Pod: "pool-0", Address: address, Name: name, Authority: authority})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if _, err := m.Describe(t.Context()); err == nil || !strings.Contains(err.Error(), "describe memory server pool-0: Unavailable") {
			t.Errorf("%s: %v", name, err)
		}
	}
	f("pool-0.other.ns.svc", a)
	f("pool-0.pool.ns.svc", newAuthority(t))
}

// older is a memory server of a version that does not know calls which were added since.
type older struct {
	rpcv1.UnimplementedMemoryServer
}

// TestOlderServer: what an older server does not offer is recognised.
func TestOlderServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	rpcv1.RegisterMemoryServer(server, older{})
	go func() { _ = server.Serve(listener) }() // until Stop
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	m := &memory{rpcv1.NewMemoryClient(conn), func() { conn.Close() }, "pool-0"}
	defer m.Close()
	if _, err := m.AwaitHoldings(t.Context(), "uid", 1, time.Second); !errors.Is(err, ErrNotOffered) {
		t.Errorf("AwaitHoldings: %v", err)
	}
	if _, err := m.ListHoldings(t.Context(), "uid"); !errors.Is(err, ErrNotOffered) {
		t.Errorf("ListHoldings: %v", err)
	}
}

// TestOperatorsCertificate: it is renewed every day by the clock on the wall, and once a clock that
// was ahead is right.
func TestOperatorsCertificate(t *testing.T) {
	a, g, now := newAuthority(t), NewGRPC(), time.Now()
	g.now = func() time.Time { return now }
	f := func(what string, after time.Duration, renewed bool) {
		t.Helper()
		before, err := g.pair(a)
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(after)
		if got, err := g.pair(a); err != nil || (string(got.Cert) != string(before.Cert)) != renewed {
			t.Errorf("%s: renewed %v, want %v (%v)", what, !renewed, renewed, err)
		}
	}
	f("soon", time.Hour, false)
	f("a day later", 24*time.Hour, true)
	f("the clock was ahead", -3*time.Hour, true)
}
