package attach

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/memory"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestMixed: an index on memory servers of two fabrics, each reached by its own, with nodes and
// chunks on both.
func TestMixed(t *testing.T) {
	const identity, limit, keys = "mixed", 10 * time.Second, 20_000
	c := &config.Index{Identity: identity, Design: "sherman", KeyType: config.KeyUint64, MaxKeyBytes: 8, MaxValueBytes: 64, Routing: config.RoutingAny}
	var used []*memory.Servers
	for i, transport := range []string{"tcp", "shm"} {
		m, err := memory.Start(memory.Config{Servers: 1, Bytes: 32 << 20, ChunkBytes: 1 << 20, Transport: transport})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
		m.Run(func(err error) { t.Error(err) })
		if err := m.Admit(t.Context(), identity); err != nil {
			t.Fatal(err)
		}
		member := m.Members()[0]
		member.ID = uint16(i + 1)
		if transport == "tcp" {
			member.Transport = config.TransportTCP
		}
		c.MemoryServers = append(c.MemoryServers, member)
		used = append(used, m)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	m, err := New(c, "test", Fabric{Provider: "shm"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if got := fmt.Sprint(m.Paths()); got != "[{1 tcp } {2 shm }]" {
		t.Errorf("the paths are %s", got)
	}
	x, err := m.Open(0, limit)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	s, err := x.Session()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	key := func(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)*0x9E3779B97F4A7C15) }
	for n := range keys {
		if err := s.Upsert(key(n), fmt.Appendf(nil, "value %d", n)); err != nil {
			t.Fatalf("key %d: %v", n, err)
		}
	}
	for n := range keys {
		if v, err := s.Lookup(key(n), nil); err != nil || string(v) != fmt.Sprintf("value %d", n) {
			t.Fatalf("key %d: %q, %v", n, v, err)
		}
	}
	joins(t, m, identity)
	for i, m := range used {
		if n, err := m.UsedChunks(t.Context()); err != nil || n == 0 {
			t.Errorf("memory server %d has %d chunks in use, %v: the index does not lie on both", i+1, n, err)
		}
	}
}

// joins lets a memory server join an index that is open: the paths have it from then on.
func joins(t *testing.T, m *Memory, identity string) {
	const limit, want = 20 * time.Second, "[{1 tcp } {2 shm } {3 tcp }]"
	added, err := memory.Start(memory.Config{Servers: 1, Bytes: 32 << 20, ChunkBytes: 1 << 20, Transport: "tcp"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { added.Close() })
	added.Run(func(err error) { t.Error(err) })
	if err := added.Admit(t.Context(), identity); err != nil {
		t.Fatal(err)
	}
	of := added.Members()[0]
	if err := m.Control.Join(control.Server{ID: 3, Control: of.Control, Incarnation: of.Incarnation, Provider: "tcp"}, pool.Joining, limit); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(limit); fmt.Sprint(m.Paths()) != want; <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the paths are %v, want %s", m.Paths(), want)
		}
	}
}

// TestUnknownTransport: a provider that there is not is named.
func TestUnknownTransport(t *testing.T) {
	c := &config.Index{Identity: "x", MemoryServers: []config.MemoryServer{{ID: 1, Control: "127.0.0.1:1", Transport: "carrier pigeon"}}}
	if m, err := New(c, "test", Fabric{Provider: "tcp"}, nil); err == nil || m != nil {
		t.Errorf("%v, %v", m, err)
	}
}

// TestExpiryIsOfTheIndex: a server that does not know that pairs expire, or believes that they do,
// does not open the index.
func TestExpiryIsOfTheIndex(t *testing.T) {
	for _, expiry := range []string{"", config.ExpiryEnabled} {
		m, err := memory.Start(memory.Config{Servers: 1, Bytes: 32 << 20, ChunkBytes: 1 << 20, Transport: "shm"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
		m.Run(func(err error) { t.Error(err) })
		c := &config.Index{Identity: "expiry", Design: "sherman", KeyType: config.KeyUint64, MaxKeyBytes: 8, MaxValueBytes: 64, Routing: config.RoutingAny, Expiry: expiry, MemoryServers: m.Members()}
		if err := m.Admit(t.Context(), c.Identity); err != nil {
			t.Fatal(err)
		}
		open := func(want error) {
			t.Helper()
			m, err := New(c, "test", Fabric{Provider: "shm"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			x, err := m.Open(0, 10*time.Second)
			if err == nil {
				err = x.Close()
			}
			if !errors.Is(err, want) {
				t.Errorf("an index with expiry %q, opened with %q: %v", expiry, c.Expiry, err)
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
		open(nil)
		if c.Expiry = config.ExpiryEnabled; expiry != "" {
			c.Expiry = ""
		}
		open(index.ErrFormat)
	}
}

// TestReaddress: a memory server that is elsewhere than when the process began is found where the
// index's configuration has it now. The configuration of another index changes nothing.
func TestReaddress(t *testing.T) {
	m, err := memory.Start(memory.Config{Servers: 1, Bytes: 32 << 20, ChunkBytes: 1 << 20, Transport: "tcp"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	m.Run(func(err error) { t.Error(err) })
	now := config.Index{Identity: "moved", Design: "sherman", KeyType: config.KeyUint64, MaxKeyBytes: 8, MaxValueBytes: 64, Routing: config.RoutingAny, MemoryServers: m.Members()}
	if err := m.Admit(t.Context(), now.Identity); err != nil {
		t.Fatal(err)
	}
	was, other := now, now
	was.MemoryServers = []config.MemoryServer{{ID: 1, Control: "127.0.0.1:1"}}
	other.Identity = "other"
	a, err := New(&was, "test", Fabric{Provider: "tcp"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for _, c := range []struct {
		to    *config.Index
		opens bool
	}{{&was, false}, {&other, false}, {&now, true}} {
		a.Readdress(c.to)
		x, err := a.Open(0, 10*time.Second)
		if (err == nil) != c.opens {
			t.Errorf("with the configuration of %s, at %s: %v", c.to.Identity, c.to.MemoryServers[0].Control, err)
		}
		if err == nil {
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
