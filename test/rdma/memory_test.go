//go:build ibv

package rdma

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/sherman"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/ibv"
)

const (
	indexID   = "rdma/1"
	server    = 7
	limit     = time.Minute
	bootLimit = 4 * time.Minute // for the memory server's machine
)

// setting is a required variable of the environment; see hack/rdma/run.
func setting(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set: these tests are run by `make rdma`", name)
	}
	return v
}

// TestCertificates writes the TLS directories of the memory server, the operator and the index. It
// runs on the host, before the machines are up.
func TestCertificates(t *testing.T) {
	dir := setting(t, "RDMA_TLS")
	ca := identitytest.NewCA(t, "rdma")
	for name, o := range map[string]identitytest.Options{
		"server":   {DNSNames: []string{"memory", "slow"}},
		"operator": {URIs: []*url.URL{identity.Operator()}},
		"index":    {URIs: []*url.URL{identity.Compute(indexID)}},
	} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		ca.Write(filepath.Join(dir, name), o, ca)
	}
}

// world is a memory server elsewhere, with an index admitted to it.
type world struct {
	*testing.T
	address  string
	operator rpcv1.MemoryClient
	files    *identity.Files // of the index
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, address: setting(t, "RDMA_CONTROL")}
	tls := setting(t, "RDMA_TLS")
	files, err := identity.Open(filepath.Join(tls, "operator"))
	if err != nil {
		t.Fatal(err)
	}
	if w.files, err = identity.Open(filepath.Join(tls, "index")); err != nil {
		t.Fatal(err)
	}
	conn, err := control.Dial(w.address, files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	w.operator = rpcv1.NewMemoryClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), bootLimit)
	defer cancel()
	has, err := w.operator.Describe(ctx, &rpcv1.DescribeMemoryRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatalf("the memory server at %s does not answer: %v", w.address, err)
	}
	if len(has.Transports) != 1 || has.Transports[0].Provider != "ibv" {
		t.Fatalf("the memory server offers %v, want ibv alone", has.Transports)
	}
	if _, err := w.operator.Admit(ctx, &rpcv1.AdmitRequest{Index: indexID, QuotaChunks: has.ChunksTotal, Locks: has.LocksTotal}); err != nil {
		t.Fatal(err)
	}
	return w
}

// open is the index as the client of a name sees it.
func (w *world) open(name string) (*pool.Pool, index.Index) {
	w.Helper()
	device, err := ibv.NewDevice(ibv.Options{})
	if err != nil {
		w.Fatal(err)
	}
	c, err := control.New(control.Config{
		Index: indexID, Name: name, Provider: "ibv", TLS: w.files, Servers: []control.Server{{ID: server, Control: w.address}},
	})
	if err != nil {
		w.Fatal(err)
	}
	p, err := pool.Open(pool.Config{Env: env.Real(), Control: c, Devices: []verbs.Device{device}, Identity: indexID, Limit: limit})
	if err != nil {
		w.Fatal(err)
	}
	design, err := index.Lookup(sherman.Name)
	if err != nil {
		w.Fatal(err)
	}
	x, err := design.Open(p, index.Options{Uint64: true, MaxValueBytes: 64})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		err := errors.Join(x.Close(), p.Close())
		if err != nil && p.Alive() == nil {
			w.Errorf("close %s: %v", name, err)
		}
		c.Close()
	})
	return p, x
}

func (w *world) session(x index.Index) index.Session {
	w.Helper()
	s, err := x.Session()
	if err != nil {
		w.Fatal(err)
	}
	s.SetLimit(limit)
	w.Cleanup(func() { s.Close() })
	return s
}

func key(n uint64) []byte {
	return []byte{byte(n >> 56), byte(n >> 48), byte(n >> 40), byte(n >> 32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
}

// TestSherman lets several sessions write, change and delete keys of their own side by side, reads
// all of them by lookups and by a scan, and checks the tree.
func TestSherman(t *testing.T) {
	w := newWorld(t)
	p, x := w.open(t.Name())
	const sessions = 4
	each, err := strconv.ParseUint(setting(t, "RDMA_KEYS"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for g := range uint64(sessions) {
		s := w.session(x)
		all.Go(func() {
			check := func(what string, n uint64, err error) {
				if err != nil {
					t.Errorf("%s %d: %v", what, n, err)
				}
			}
			for i := range each {
				if t.Failed() {
					return
				}
				n := i*sessions + g
				check("insert", n, s.Insert(key(n), fmt.Appendf(nil, "first-%d", n)))
				if i%2 == 0 {
					check("update", n, s.Update(key(n), fmt.Appendf(nil, "second-%d", n)))
				}
				if i%5 == 0 {
					check("delete", n, s.Delete(key(n)))
				}
			}
		})
	}
	all.Wait()
	want := func(n uint64) string {
		switch i := n / sessions; {
		case i%5 == 0:
			return ""
		case i%2 == 0:
			return fmt.Sprintf("second-%d", n)
		}
		return fmt.Sprintf("first-%d", n)
	}
	s := w.session(x)
	pairs := uint64(0)
	for n := range sessions * each {
		got, err := s.Lookup(key(n), nil)
		if errors.Is(err, index.ErrNotFound) {
			err = nil
		}
		if err != nil || string(got) != want(n) {
			t.Fatalf("key %d: %q, %v; want %q", n, got, err, want(n))
		}
		if want(n) != "" {
			pairs++
		}
	}
	scanned := uint64(0)
	if err := s.Scan(nil, int(sessions*each), false, func(_, _ []byte) bool { scanned++; return true }); err != nil || scanned != pairs {
		t.Errorf("a scan finds %d pairs, %v; want %d", scanned, err, pairs)
	}
	found, err := x.(index.Checker).Check()
	if err != nil || found.Pairs != pairs || found.Levels < 2 {
		t.Errorf("the tree has %+v, %v; want %d pairs", found, err, pairs)
	}
	n := p.Counters()
	t.Logf("%d pairs in %d nodes, %d READs, %d WRITEs, %d atomics, %d round trips",
		found.Pairs, found.Nodes, n.Requests[verbs.Read], n.Requests[verbs.Write], n.Atomics(), n.RoundTrips)
}

// TestFence: the operator fences a client that writes. It is told so by its next request, what it
// was acknowledged is there, and nothing of it takes effect afterwards.
func TestFence(t *testing.T) {
	w := newWorld(t)
	_, x := w.open("stays")
	s := w.session(x)
	victim, other := w.open("goes")
	writer := w.session(other)
	const base, keys = 1 << 40, 64
	var acknowledged atomic.Uint64
	died := make(chan error, 1)
	go func() {
		for i := uint64(1); ; i++ {
			if err := writer.Upsert(key(base+i%keys), fmt.Appendf(nil, "%d", i)); err != nil {
				died <- err
				return
			}
			acknowledged.Store(i)
		}
	}()
	for deadline := time.Now().Add(limit); acknowledged.Load() < 2*keys; {
		if len(died) > 0 || time.Now().After(deadline) {
			t.Fatalf("the writer got to %d", acknowledged.Load())
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if _, err := w.operator.Fence(ctx, &rpcv1.FenceRequest{Index: indexID, Clients: []uint32{uint32(victim.Client())}}); err != nil {
		t.Fatal(err)
	}
	look := func() (values [keys]string) {
		for i := range values {
			v, err := s.Lookup(key(base+uint64(i)), nil)
			if err != nil {
				t.Fatalf("key %d after the fence: %v", i, err)
			}
			values[i] = string(v)
		}
		return values
	}
	before := look()
	select {
	case err := <-died:
		if !errors.Is(err, verbs.ErrDisconnected) && !errors.Is(err, pool.ErrFenced) {
			t.Errorf("the fenced writer died of %v", err)
		}
	case <-time.After(limit):
		t.Fatalf("the fenced writer still writes")
	}
	if after := look(); after != before {
		t.Errorf("values went from %v to %v after the fence", before, after)
	}
	last := acknowledged.Load()
	for i := range uint64(keys) {
		n := last - (last-i+keys)%keys // the last acknowledged write of the key
		if v := before[i]; v != fmt.Sprint(n) && v != fmt.Sprint(last+1) {
			t.Errorf("key %d is %s, acknowledged is %d", i, v, n)
		}
		if err := s.Upsert(key(base+i), []byte("mine")); err != nil {
			t.Errorf("write key %d behind the fenced client: %v", i, err)
		}
	}
}
