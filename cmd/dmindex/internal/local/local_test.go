package local

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dmindex/dmindex/api/config"
)

func small(transport string) Config {
	return Config{
		Listen: "127.0.0.1:0", ListenRPC: "127.0.0.1:0", Transport: transport, Design: "sherman", MemoryServers: 2, ComputeServers: 2,
		MemoryBytes: 64 << 20, KeyType: config.KeyBytes, MaxKeyBytes: 512, MaxValueBytes: 2048, Routing: config.RoutingAny,
		Version: "test", Logger: slog.New(slog.DiscardHandler),
	}
}

// serve runs a local index for the test and returns a Redis client of each compute server.
func serve(t *testing.T, c Config, password string) []*redis.Client {
	t.Helper()
	dir := t.TempDir() // of sockets
	t.Setenv("TMPDIR", dir)
	l, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- l.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	var clients []*redis.Client
	for _, address := range l.RESP {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: address, Password: password, Protocol: 2}))
	}
	t.Cleanup(func() {
		for _, r := range clients {
			r.Close()
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	return clients
}

func TestLocalServes(t *testing.T) {
	for _, transport := range []string{"shm", "tcp"} {
		for _, routing := range []string{config.RoutingAny, config.RoutingOwner} {
			for _, design := range []string{"sherman", "dex"} {
				t.Run(transport+"/"+routing+"/"+design, func(t *testing.T) {
					c := small(transport)
					c.Routing, c.Design = routing, design
					serves(t, serve(t, c, ""))
				})
			}
		}
	}
}

// TestLocalDividesShortKeys: keys that are shorter than the 8 bytes that widths are counted in are
// divided among three owners.
func TestLocalDividesShortKeys(t *testing.T) {
	for _, longest := range []int{1, 4} {
		t.Run(fmt.Sprint(longest), func(t *testing.T) {
			c := small("shm")
			c.Design, c.Routing, c.ComputeServers, c.MaxKeyBytes = "dex", config.RoutingOwner, 3, longest
			clients, ctx := serve(t, c, ""), context.Background()
			const n = 250
			for i := range n {
				key := string([]byte{byte(i), 'k', byte(i >> 4), 'y'}[:longest])
				if err := clients[i%3].Set(ctx, key, i, 0).Err(); err != nil {
					t.Fatal(err)
				}
			}
			for i := range n {
				key := string([]byte{byte(i), 'k', byte(i >> 4), 'y'}[:longest])
				if got, err := clients[(i+1)%3].Get(ctx, key).Int(); err != nil || got != i {
					t.Fatalf("%q is %d, %v", key, got, err)
				}
			}
			pairs, err := clients[0].Do(ctx, "RANGE", "", "", "LIMIT", 2*n).StringSlice()
			if err != nil || len(pairs) != 2*n {
				t.Fatalf("range of all has %d elements, %v", len(pairs), err)
			}
		})
	}
}

// serves writes at one server and reads at the other.
func serves(t *testing.T, clients []*redis.Client) {
	ctx := context.Background()
	const n = 2000
	for i := range n {
		key := fmt.Sprintf("%c%06d", byte(i*37), i)
		value := fmt.Sprintf("%0*d", 1+i%4/3*600, i) // one in four is too long for a leaf
		if err := clients[i%2].Set(ctx, key, value, 0).Err(); err != nil {
			t.Fatal(err)
		}
		got, err := clients[(i+1)%2].Get(ctx, key).Result()
		if err != nil || got != value {
			t.Fatalf("%q is %q, %v", key, got, err)
		}
	}
	for i, r := range clients {
		pairs, err := r.Do(ctx, "RANGE", "", "", "LIMIT", 2*n).StringSlice()
		if err != nil || len(pairs) != 2*n {
			t.Fatalf("server %d: range of all has %d elements, %v", i, len(pairs), err)
		}
		for j := 2; j < len(pairs); j += 2 {
			if pairs[j-2] >= pairs[j] {
				t.Fatalf("server %d: %q before %q", i, pairs[j-2], pairs[j])
			}
		}
	}
}

func TestLocalWithPassword(t *testing.T) {
	c := small("shm")
	c.Users.PasswordFile = filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(c.Users.PasswordFile, []byte("open sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	right := serve(t, c, "open sesame")[0]
	if err := right.Set(context.Background(), "k", "v", 0).Err(); err != nil {
		t.Error(err)
	}
	wrong := redis.NewClient(&redis.Options{Addr: right.Options().Addr, Protocol: 2})
	defer wrong.Close()
	if err := wrong.Get(context.Background(), "k").Err(); err == nil || err == redis.Nil {
		t.Errorf("without a password: %v", err)
	}
}

func TestLocalRefuses(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no memory server":     func(c *Config) { c.MemoryServers = 0 },
		"unknown design":       func(c *Config) { c.Design = "rtree" },
		"long keys":            func(c *Config) { c.MaxKeyBytes = 1 << 20 },
		"little memory":        func(c *Config) { c.MemoryBytes = 1 },
		"bad address":          func(c *Config) { c.Listen = "127.0.0.1" },
		"groups of numbers":    func(c *Config) { c.KeyType, c.MaxKeyBytes, c.AtomicPrefix = config.KeyUint64, 8, "}" },
		"groups up to é":       func(c *Config) { c.AtomicPrefix = "é" },
		"a long end of groups": func(c *Config) { c.AtomicPrefix = strings.Repeat("}", 17) },
	} {
		c := small("shm")
		change(&c)
		if l, err := Start(c); err == nil {
			l.Close()
			t.Errorf("%s: accepted", name)
		}
	}
}
