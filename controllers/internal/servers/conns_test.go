package servers

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// proxy passes connections on, counts them, and can cut them.
type proxy struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	count int
	open  []net.Conn
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, to: to}
	go p.serve()
	t.Cleanup(func() {
		listener.Close()
		p.cut()
	})
	return p
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.to)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.count++
		p.open = append(p.open, client, server)
		p.mu.Unlock()
		go func() { _, _ = io.Copy(server, client); server.Close() }()
		go func() { _, _ = io.Copy(client, server); client.Close() }()
	}
}

// connections is how many there were so far.
func (p *proxy) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		c.Close()
	}
	p.open = nil
}

// TestConnectionsAreKept: a server is connected to once, however often it is looked at; after it
// was away it is seen at the next look, or the one after it.
func TestConnectionsAreKept(t *testing.T) {
	a := newAuthority(t)
	p := newProxy(t, memoryServer(t, a))
	g, now := NewGRPC(), time.Now()
	g.now = func() time.Time { return now }
	target := Target{Namespace: "ns", Pod: "pool-0", UID: "u", Address: p.listener.Addr().String(), Name: "pool-0.pool.ns.svc", Authority: a}
	look := func(target Target) error {
		m, err := g.Memory(target)
		if err != nil {
			return err
		}
		defer m.Close()
		_, err = m.Describe(t.Context())
		return err
	}
	f := func(what string, want int) {
		t.Helper()
		if got := p.connections(); got != want {
			t.Errorf("%s: %d connections, want %d", what, got, want)
		}
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if err := look(target); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	f("ten looks", 1)

	other := target
	other.UID = "another pod at the same address"
	if err := look(other); err != nil {
		t.Error(err)
	}
	f("another pod", 2)

	p.cut()
	if look(target) != nil { // it may be noticed only now
		if err := look(target); err != nil {
			t.Errorf("after the connection was cut: %v", err)
		}
	}
	f("after the connection was cut", 3)

	now = now.Add(keepIdle + time.Second)
	if err := look(other); err != nil {
		t.Error(err)
	}
	if len(g.conns) != 1 {
		t.Errorf("%d connections are kept after a while, want that which was used just now", len(g.conns))
	}
}

// TestConnectionsAreFew: no more connections are kept than there shall be, and those beyond are
// closed after their use.
func TestConnectionsAreFew(t *testing.T) {
	a := newAuthority(t)
	p := newProxy(t, memoryServer(t, a))
	g := NewGRPC()
	for n := range mostKept {
		g.conns[connKey{uid: string(rune(n))}] = &sharedConn{users: 1}
	}
	m, err := g.Memory(Target{Pod: "pool-0", UID: "u", Address: p.listener.Addr().String(), Name: "pool-0.pool.ns.svc", Authority: a})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Describe(t.Context()); err != nil {
		t.Error(err)
	}
	m.Close()
	if _, err := m.Describe(t.Context()); err == nil {
		t.Error("a connection beyond the limit was not closed after its use")
	}
	if len(g.conns) != mostKept {
		t.Errorf("%d connections are kept", len(g.conns))
	}
}

// TestRefused: an address where no process listens is told from a server that does not answer.
func TestRefused(t *testing.T) {
	a := newAuthority(t)
	p := newProxy(t, memoryServer(t, a))
	target := Target{Namespace: "ns", Pod: "pool-0", UID: "u", Address: p.listener.Addr().String(), Name: "pool-0.pool.ns.svc", Authority: a}
	g := NewGRPC()
	report := func(limit time.Duration) error {
		v, err := g.Volume(target)
		if err != nil {
			return err
		}
		defer v.Close()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, err = v.Report(ctx, 1, "u")
		return err
	}
	if err := report(time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := report(time.Nanosecond); err == nil || errors.Is(err, ErrRefused) {
		t.Errorf("it does not answer in time: %v", err)
	}
	p.listener.Close()
	p.cut()
	if err := report(time.Minute); err == nil {
		t.Error("a connection that was cut is used")
	}
	if err := report(time.Minute); !errors.Is(err, ErrRefused) {
		t.Errorf("nobody listens: %v", err)
	}
}
