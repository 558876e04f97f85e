package memserver

import (
	"bytes"
	"context"
	"log/slog"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/shm"
	"github.com/dmindex/dmindex/pkg/verbs/tcp"
)

const limit = time.Minute

// testLog shows what a server logs beside the test that failed.
func testLog(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// longLease is one that no machine stands still for.
const longLease = time.Hour

// jumping is the real world, but for a clock that tests put forward.
type jumping struct {
	env.Env
	by atomic.Int64
}

func newJumping() *jumping { return &jumping{Env: env.Real()} }

// Now implements env.Env.
func (j *jumping) Now() time.Duration { return j.Env.Now() + time.Duration(j.by.Load()) }

func (j *jumping) pass(d time.Duration) { j.by.Add(int64(d)) }

// localConfig is a server on loopback without TLS and without a directory.
func localConfig(t testing.TB) Config {
	return Config{
		ID: 7, firstProcess: 1, MemoryBytes: 15 << 20, ChunkBytes: 1 << 20, Control: "127.0.0.1:0", Fabric: "127.0.0.1:0", Metrics: "127.0.0.1:0",
		Shm: filepath.Join(t.TempDir(), "shm"), Insecure: true, Lease: longLease, Version: "test", Logger: testLog(t),
	}
}

// start runs a server until the test ends, or until the returned function, which waits for its end.
func start(t testing.TB, c Config) (*Server, func()) {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s, run(t, s)
}

// run is start of a server that was made.
func run(t testing.TB, s *Server) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		cancel()
		if stopped {
			return
		}
		stopped = true
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("server ended: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("server does not end")
		}
	}
	t.Cleanup(stop)
	return stop
}

// admin is a caller of a server's control service; files = nil without TLS.
func admin(t testing.TB, address string, files *identity.Files) rpcv1.MemoryClient {
	t.Helper()
	conn, err := control.Dial(address, files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return rpcv1.NewMemoryClient(conn)
}

// client is the pool's control path of one index.
func client(t testing.TB, address, index, provider string, files *identity.Files) *control.Client {
	t.Helper()
	c, err := control.New(control.Config{
		Index: index, Name: t.Name(), Provider: provider, TLS: files, Servers: []control.Server{{ID: 7, Control: address}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func deviceOf(provider string) verbs.Device {
	if provider == "shm" {
		return shm.NewDevice()
	}
	return tcp.NewDevice()
}

// open connects with a grant.
func open(t testing.TB, grant pool.Grant) (verbs.Conn, verbs.QP, *verbs.Arena) {
	t.Helper()
	device := deviceOf(grant.Provider)
	conn, err := device.Connect(grant.Target, limit)
	if err != nil {
		t.Fatal(err)
	}
	arena, err := device.NewArena(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := conn.NewQP(arena)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); arena.Close(); device.Close() })
	return conn, qp, arena
}

// must is v where nothing can go wrong but for the thing under test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func tlsFiles(t testing.TB, ca *identitytest.CA, uri *url.URL) *identity.Files {
	t.Helper()
	return must(identity.Open(ca.Dir(identitytest.Options{URIs: []*url.URL{uri}})))
}

// TestPath goes the whole way of a client, under TLS and over both providers: admit, register,
// connect, allocate, one-sided requests, free, evict.
func TestPath(t *testing.T) {
	const index = "0b7c/2"
	ca := identitytest.NewCA(t, "index")
	c := localConfig(t)
	c.Insecure, c.TLSDir = false, ca.Dir(identitytest.Options{})
	s, _ := start(t, c)
	address := s.Addresses().Control
	operator := admin(t, address, tlsFiles(t, ca, identity.Operator()))
	ctx := t.Context()

	reply := must(operator.Admit(ctx, &rpcv1.AdmitRequest{Index: index, QuotaChunks: 3}))
	if reply.Incarnation != s.Incarnation() || reply.Existed {
		t.Fatalf("admitted: %v", reply)
	}
	compute := tlsFiles(t, ca, identity.Compute(index))
	for i, provider := range []string{"tcp", "shm"} {
		c := client(t, address, index, provider, compute)
		id := must(c.Register(limit))
		if id != uint32(i+1) {
			t.Errorf("client id %d", id)
		}
		grant := must(c.Connect(7, id, limit))
		if grant.Locks != 16384 || grant.ChunkBytes != 1<<20 || grant.Superblock != 4096 || grant.LockOffset != 0 {
			t.Errorf("grant %+v", grant)
		}
		chunk := must(c.AllocateChunk(7, id, 1024, false, limit))
		conn, qp, arena := open(t, grant)
		if conn.Incarnation() != s.Incarnation() {
			t.Errorf("incarnation %x", conn.Incarnation())
		}
		out, in, old := must(arena.Alloc(64)), must(arena.Alloc(64)), must(arena.Alloc(8))
		copy(out, bytes.Repeat([]byte(provider), 20))
		if err := verbs.Post(qp, []verbs.Request{
			{Op: verbs.Write, Remote: chunk, Local: out},
			{Op: verbs.Read, Remote: chunk, Local: in},
			{Op: verbs.FetchAdd, Region: verbs.RegionLocks, Remote: grant.LockOffset, Local: old, Add: 1},
		}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(in, out) || old[0] != byte(i) {
			t.Errorf("%s: read %q, lock word was %d", provider, in, old[0])
		}
		if err := c.FreeChunk(7, id, chunk, limit); err != nil {
			t.Error(err)
		}
	}
	d := must(operator.Describe(ctx, &rpcv1.DescribeMemoryRequest{}))
	if len(d.Indexes) != 1 || d.Indexes[0].Clients != 2 || d.ChunksTotal != 7 || d.ChunksGranted != 3 || d.ChunksUsed != 0 || len(d.Transports) != 2 {
		t.Errorf("description %v", d)
	}
	must(operator.Evict(ctx, &rpcv1.EvictRequest{Index: index}))
	if d := must(operator.Describe(ctx, &rpcv1.DescribeMemoryRequest{})); len(d.Indexes) != 0 {
		t.Errorf("after the eviction: %v", d)
	}
}

// TestReserveAnonymousLocks: memory without a directory can be reserved when its lock table ends
// within a page: its file ends there too, and is sealed.
func TestReserveAnonymousLocks(t *testing.T) {
	c := localConfig(t)
	c.DataDir, c.LockTableBytes, c.Reserve = "", 64<<10+512, true
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
