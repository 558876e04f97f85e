package computeserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/connectivity"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/internal/memindex"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
)

// fakeMaps is a map source whose map the test sets.
type fakeMaps struct {
	mu      sync.Mutex
	data    []byte
	gen     uint64
	changed chan struct{}
}

func newFakeMaps() *fakeMaps { return &fakeMaps{changed: make(chan struct{})} }

func (f *fakeMaps) set(t testing.TB, m *partition.Map) {
	t.Helper()
	data, err := m.Marshal(nil)
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.data, f.gen = data, m.Generation
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeMaps) Map(newerThan uint64, wait time.Duration) ([]byte, error) {
	f.mu.Lock()
	data, gen, changed := f.data, f.gen, f.changed
	f.mu.Unlock()
	if gen > newerThan {
		return data, nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.data, nil
}

func (f *fakeMaps) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.changed)
	f.changed = make(chan struct{})
}

// cluster is some servers over one store and one map source.
type cluster struct {
	t       testing.TB
	store   *memindex.Store
	maps    map[uint32]*fakeMaps
	servers map[uint32]*running
	routing string
	adjust  func(*Config)
}

type running struct {
	*Server
	addresses Addresses
	cancel    context.CancelFunc
	done      chan error
}

const testIndex = "uid-1"

func testConfig(routing string) *config.Index {
	return &config.Index{
		Identity: testIndex, Name: "idx", Namespace: "ns", Design: "memory", KeyType: config.KeyBytes, MaxKeyBytes: 512, MaxValueBytes: 2048,
		Durability: "Memory", Routing: routing, MemoryServers: []config.MemoryServer{{ID: 1, Control: "mem-0:7471"}},
	}
}

func newCluster(t testing.TB, routing string, adjust func(*Config), ids ...uint32) *cluster {
	c := &cluster{t: t, store: memindex.New(env.Real(), 512, 2048), maps: map[uint32]*fakeMaps{}, servers: map[uint32]*running{}, routing: routing, adjust: adjust}
	for _, id := range ids {
		c.start(id)
	}
	return c
}

// start runs one more server, and waits until its index is open; it is in no map until publish.
func (c *cluster) start(id uint32) *running {
	c.t.Helper()
	maps := newFakeMaps()
	cfg := Config{
		ID: id, Version: "test", Index: testConfig(c.routing), SharesAll: true, Maps: maps, AllowNoPassword: true,
		Limit:      30 * time.Second, // longer than a busy machine stands still
		Open:       func() (Opened, error) { return c.store.Open(), nil },
		ListenRESP: "127.0.0.1:0", ListenRPC: "127.0.0.1:0", ListenMetrics: "127.0.0.1:0",
		Logger: testLogger(c.t).With("server", id),
	}
	if c.adjust != nil {
		c.adjust(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	s.core.eng.standstill = standstillHere
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Server: s, addresses: s.Addresses(), cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- s.Run(ctx) }()
	c.maps[id], c.servers[id] = maps, r
	c.t.Cleanup(func() { c.stop(id) })
	c.awaitOpen(id)
	return r
}

// standstillHere is what these servers take for a standstill: no machine stands still for so long.
const standstillHere = time.Hour

// awaitOpen waits until the index is open, also anew after a lapse.
func (c *cluster) awaitOpen(id uint32) {
	c.t.Helper()
	awaitTrue(c.t, fmt.Sprintf("the index is open at server %d", id), func() bool { return c.servers[id].core.eng.state() == nil })
}

// link is how a server forwards to another one, connected.
func (c *cluster) link(from, to uint32) *peerLink {
	c.t.Helper()
	l, err := c.servers[from].peers.link(c.members(to)[0])
	if err != nil {
		c.t.Fatal(err)
	}
	awaitTrue(c.t, fmt.Sprintf("server %d is connected to server %d", from, to), func() bool {
		l.conn.Connect()
		return l.conn.GetState() == connectivity.Ready
	})
	return l
}

// stop ends a server and waits for it.
func (c *cluster) stop(id uint32) {
	r := c.servers[id]
	if r == nil {
		return
	}
	delete(c.servers, id)
	r.cancel()
	select {
	case err := <-r.done:
		if err != nil {
			c.t.Errorf("server %d: %v", id, err)
		}
	case <-time.After(60 * time.Second):
		c.t.Errorf("server %d did not end within a minute", id)
	}
}

// members are the servers as a map lists them.
func (c *cluster) members(ids ...uint32) (out []partition.Server) {
	for _, id := range ids {
		a := c.servers[id].addresses
		out = append(out, partition.Server{ID: id, Name: fmt.Sprintf("pod-%d", id), RPC: a.RPC, RESP: a.RESP})
	}
	return out
}

// split is the first map, with given boundaries between servers.
func (c *cluster) split(ids []uint32, boundaries ...string) *partition.Map {
	c.t.Helper()
	var keys [][]byte
	for _, b := range boundaries {
		keys = append(keys, []byte(b))
	}
	m, err := partition.ByBoundaries(testIndex, c.members(ids...), keys)
	if err != nil {
		c.t.Fatal(err)
	}
	c.publish(m)
	return m
}

// publish hands a map to every server and waits until they act on it.
func (c *cluster) publish(m *partition.Map) {
	c.t.Helper()
	for _, maps := range c.maps {
		maps.set(c.t, m)
	}
	for id, r := range c.servers {
		awaitTrue(c.t, fmt.Sprintf("server %d has generation %d", id, m.Generation), func() bool { return r.core.own.generation() >= m.Generation })
	}
}

// awaitTrue polls what has no event to wait for.
func awaitTrue(t testing.TB, what string, f func() bool) {
	t.Helper()
	e := env.Real()
	for deadline := e.Now() + time.Minute; !f(); e.Sleep(time.Millisecond) {
		if e.Now() > deadline {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func (c *cluster) redis(id uint32) *redis.Client {
	r := redis.NewClient(&redis.Options{Addr: c.servers[id].addresses.RESP, MaxRetries: -1, DisableIdentity: true, DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
	c.t.Cleanup(func() { _ = r.Close() })
	return r
}

// raw is a connection on which bytes go back and forth as they are.
type raw struct {
	t  testing.TB
	nc net.Conn
}

func (c *cluster) raw(id uint32) *raw {
	c.t.Helper()
	nc, err := net.Dial("tcp", c.servers[id].addresses.RESP)
	if err != nil {
		c.t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(2 * time.Minute))
	c.t.Cleanup(func() { _ = nc.Close() })
	return &raw{c.t, nc}
}

func (r *raw) send(s string) {
	r.t.Helper()
	if _, err := r.nc.Write([]byte(s)); err != nil {
		r.t.Fatal(err)
	}
}

// expect reads exactly want.
func (r *raw) expect(want string) {
	r.t.Helper()
	got := make([]byte, 0, len(want))
	for len(got) < len(want) {
		n, err := r.nc.Read(got[len(got):cap(got)])
		got = got[:len(got)+n]
		if !strings.HasPrefix(want, string(got)) || err != nil {
			r.t.Fatalf("got %q, want %q (%v)", got, want, err)
		}
	}
}

// expectEnd reads until the server ends the connection, and returns what came before.
func (r *raw) expectEnd() string {
	r.t.Helper()
	var b strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := r.nc.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				r.t.Fatalf("the connection was not ended; it sent %q", b.String())
			}
			return b.String()
		}
	}
}

// resp is a command as clients send it.
func resp(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

// expectAny fills b, whatever comes.
func (r *raw) expectAny(b []byte) {
	r.t.Helper()
	if _, err := io.ReadFull(r.nc, b); err != nil {
		r.t.Fatal(err)
	}
}

func nilOpen() (Opened, error) { return nil, errors.New("not in this test") }

// line reads up to the end of a line.
func (r *raw) line() string {
	r.t.Helper()
	var b []byte
	for one := make([]byte, 1); !strings.HasSuffix(string(b), "\r\n"); b = append(b, one...) {
		r.expectAny(one)
	}
	return string(b)
}

func testLogger(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(testLog{t}, nil)) }

// testLog writes lines of a log to that of a test.
type testLog struct{ t testing.TB }

// Write implements io.Writer.
func (l testLog) Write(line []byte) (int, error) {
	l.t.Logf("%s", bytes.TrimSpace(line))
	return len(line), nil
}
