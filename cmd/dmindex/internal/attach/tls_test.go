package attach

import (
	"context"
	"encoding/binary"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

const tlsLimit = 20 * time.Second

// secured runs a memory server with certificates, and returns what a compute server of its index
// has.
func secured(t testing.TB, design string) (*config.Index, *identity.Files) {
	t.Helper()
	ca := identitytest.NewCA(t, "ca")
	open := func(uri *url.URL) *identity.Files {
		files, err := identity.Open(ca.Dir(identitytest.Options{URIs: []*url.URL{uri}}))
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	m, err := memserver.New(memserver.Config{
		ID: 1, MemoryBytes: 256 << 20, ChunkBytes: 1 << 20, Control: "127.0.0.1:0", Fabric: "127.0.0.1:0",
		TLSDir: ca.Dir(identitytest.Options{}), Executor: index.Executor(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	conn, err := control.Dial(m.Addresses().Control, open(identity.Operator()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := rpcv1.NewMemoryClient(conn).Admit(ctx, &rpcv1.AdmitRequest{Index: "i", QuotaChunks: 200}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	return &config.Index{
		Identity: "i", Design: design, KeyType: config.KeyUint64, MaxKeyBytes: 8, MaxValueBytes: 64, Routing: config.RoutingAny,
		MemoryServers: []config.MemoryServer{{ID: 1, Control: m.Addresses().Control}},
	}, open(identity.Compute("i"))
}

// opened is the index, over the fabric with or without TLS.
func opened(t testing.TB, c *config.Index, files *identity.Files, overTLS bool) *Index {
	t.Helper()
	m, err := New(c, "", Fabric{Provider: "tcp", TLS: overTLS}, files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	x, err := m.Open(64<<10, tlsLimit) // most of the index is not in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

func tlsKey(n int) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(n)*0x9E3779B97F4A7C15)
}

// TestFabricTLS: a design finds under TLS what it wrote in the clear, and the other way round.
func TestFabricTLS(t *testing.T) {
	const keys = 5000
	c, files := secured(t, "sherman")
	for _, f := range []struct{ write, read bool }{{false, true}, {true, false}} {
		writer, reader := opened(t, c, files, f.write), opened(t, c, files, f.read)
		w, err := writer.Session()
		if err != nil {
			t.Fatal(err)
		}
		r, err := reader.Session()
		if err != nil {
			t.Fatal(err)
		}
		for n := range keys {
			if err := w.Upsert(tlsKey(n), tlsKey(n)); err != nil {
				t.Fatal(err)
			}
		}
		for n := range keys {
			if v, err := r.Lookup(tlsKey(n), nil); err != nil || string(v) != string(tlsKey(n)) {
				t.Fatalf("key %d: %x, %v", n, v, err)
			}
		}
		w.Close()
		r.Close()
	}
	for _, f := range []struct {
		what     string
		provider string
		files    *identity.Files
	}{{"--tls-dir", "tcp", nil}, {"only tcp has TLS", "shm", files}} {
		if _, err := New(c, "", Fabric{Provider: f.provider, TLS: true}, f.files); err == nil || !strings.Contains(err.Error(), f.what) {
			t.Errorf("%v does not say %q", err, f.what)
		}
	}
}

// BenchmarkFabricTLS is one session of a design, memory server in the same process. Of the keys
// almost none is in the cache.
func BenchmarkFabricTLS(b *testing.B) {
	const keys = 200_000
	for _, design := range []string{"dex", "sherman"} {
		c, files := secured(b, design)
		for epoch, way := range []struct {
			name string
			tls  bool
		}{{"clear", false}, {"tls", true}} {
			x := opened(b, c, files, way.tls)
			if owner, ok := x.Opened().(*Owner); ok {
				if err := owner.Take(pool.Holding{Epoch: uint64(epoch + 1)}); err != nil {
					b.Fatal(err)
				}
			}
			s, err := x.Session()
			if err != nil {
				b.Fatal(err)
			}
			if _, err := s.Lookup(tlsKey(0), nil); err != nil {
				for n := range keys {
					if err := s.Upsert(tlsKey(n), tlsKey(n)); err != nil {
						b.Fatal(err)
					}
				}
			}
			for _, op := range []struct {
				name string
				do   func(n int) error
			}{
				{"get", func(n int) error { _, err := s.Lookup(tlsKey(n*7919%keys), nil); return err }},
				{"set", func(n int) error { return s.Upsert(tlsKey(n*7919%keys), tlsKey(n)) }},
			} {
				b.Run(design+"/"+op.name+"/"+way.name, func(b *testing.B) {
					before := usedCPU()
					for n := range b.N {
						if err := op.do(n); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(usedCPU()-before)/float64(b.N), "cpu-ns/op")
				})
			}
			s.Close()
			if owner, ok := x.Opened().(*Owner); ok {
				if _, err := owner.Give(nil, nil); err != nil {
					b.Fatal(err)
				}
			}
			x.Close()
		}
	}
}

// usedCPU is what this process has used so far.
func usedCPU() time.Duration {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
