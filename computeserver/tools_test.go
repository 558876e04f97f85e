package computeserver

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
)

// tool runs a program of Debian's redis-tools against a server.
func (c *cluster) tool(id uint32, name string, args ...string) string {
	c.t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		c.t.Fatalf("%s is not installed; install Debian's package redis-tools, which this test compares with", name)
	}
	host, port, _ := net.SplitHostPort(c.servers[id].addresses.RESP)
	ctx, stop := context.WithTimeout(context.Background(), 3*time.Minute)
	defer stop()
	out, err := exec.CommandContext(ctx, path, append([]string{"-h", host, "-p", port}, args...)...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func TestRedisCLI(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "m")
	f := func(want string, args ...string) {
		t.Helper()
		if got := strings.TrimSuffix(c.tool(1, "redis-cli", args...), "\n"); got != want {
			t.Errorf("redis-cli %v printed %q, want %q", args, got, want)
		}
	}
	f("OK", "set", "apple", "red")
	f("OK", "set", "plum", "blue")
	f("red", "get", "apple")
	f("apple\nred\nplum\nblue", "range", "", "")
	f("plum\nblue", "range", "", "", "rev", "limit", "1")
	f("2", "dbsize")
	f("apple\nplum", "--scan")
	f("apple", "--scan", "--pattern", "a*")
	f("red\n\nblue", "mget", "apple", "nope", "plum")
	f("1", "-3", "del", "apple")
	f("PONG", "ping")
	for _, report := range []string{"--bigkeys", "--memkeys"} {
		if out := c.tool(1, "redis-cli", report); !strings.Contains(out, "Sampled 1 keys in the keyspace!") || !strings.Contains(out, "1 strings with ") {
			t.Errorf("redis-cli %s printed:\n%s", report, out)
		}
	}
}

func TestRedisBenchmark(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "key:000000000500")
	out := c.tool(1, "redis-benchmark", "-t", "ping,set,get,mset", "-n", "20000", "-r", "1000", "-P", "16", "-q")
	for _, want := range []string{"PING_MBULK: ", "SET: ", "GET: ", "MSET (10 keys): "} {
		if !strings.Contains(out, want) {
			t.Errorf("redis-benchmark printed no %q:\n%s", want, out)
		}
	}
	if strings.Contains(strings.ToLower(out), "error") || strings.Contains(out, "WARNING") {
		t.Errorf("redis-benchmark complains:\n%s", out)
	}
	if n := c.store.Len(); n < 990 || n > 1000 {
		t.Errorf("the benchmark left %d keys of 1000", n)
	}
}

// TestGoRedis drives a usual client, pipelines and pool included, in both protocols.
func TestGoRedis(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	for _, protocol := range []int{2, 3} {
		r := redis.NewClient(&redis.Options{
			Addr: c.servers[1].addresses.RESP, Protocol: protocol, ClientName: "test",
			DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute,
		})
		t.Cleanup(func() { _ = r.Close() })
		ctx := context.Background()
		if err := r.Set(ctx, "a", "1", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Get(ctx, "nope").Result(); err != redis.Nil {
			t.Errorf("RESP%d: a missing key gave %v", protocol, err)
		}
		if ok, err := r.SetNX(ctx, "a", "2", 0).Result(); ok || err != nil {
			t.Errorf("RESP%d: SETNX gave %v, %v", protocol, ok, err)
		}
		if values, err := r.MGet(ctx, "a", "nope").Result(); err != nil || values[0] != "1" || values[1] != nil {
			t.Errorf("RESP%d: MGET gave %v, %v", protocol, values, err)
		}
		if err := r.Set(ctx, "a", "1", time.Minute).Err(); err == nil || !strings.Contains(err.Error(), "do not expire") {
			t.Errorf("RESP%d: SET with expiry gave %v", protocol, err)
		}
		replies, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range 1000 {
				p.Set(ctx, fmt.Sprint("p", i), i, 0)
				p.Get(ctx, fmt.Sprint("p", i))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 1000 {
			if got := replies[2*i+1].(*redis.StringCmd).Val(); got != fmt.Sprint(i) {
				t.Fatalf("RESP%d: reply %d is %q", protocol, i, got)
			}
		}
		if list, err := r.ClientList(ctx).Result(); err != nil || !strings.Contains(list, "name=test") {
			t.Errorf("RESP%d: CLIENT LIST gave %q, %v", protocol, list, err)
		}
	}
}

// TestTLS runs two servers and programs under mTLS: servers show certificates to each other,
// programs the password.
func TestTLS(t *testing.T) {
	ca := identitytest.NewCA(t, "index")
	stranger := identitytest.NewCA(t, "stranger")
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := openTLS(t, ca)
	c := newCluster(t, config.RoutingOwner, func(cfg *Config) {
		cfg.TLS, cfg.Users.PasswordFile, cfg.AllowNoPassword = files, password, false
	}, 1, 2)
	c.split([]uint32{1, 2}, "m")
	r := c.raw(1)
	// the key is of server 2
	r.Send(computeservertest.Command("AUTH", "secret") + computeservertest.Command("SET", "x", "1"))
	r.Expect("+OK\r\n+OK\r\n")

	connect := func(limit time.Duration, password string, ca *identitytest.CA) (*client.Client, error) {
		return client.Connect(context.Background(), client.Options{
			Endpoints: []string{c.servers[1].addresses.RPC}, Password: password, CA: ca.PEM, Limit: limit, Attempt: limit,
		})
	}
	cl, err := connect(time.Minute, "secret", ca)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if v, err := cl.Get(context.Background(), []byte("x")); err != nil || string(v) != "1" {
		t.Errorf("got %q, %v", v, err)
	}
	if _, err := connect(time.Minute, "wrong", ca); err == nil || !strings.Contains(err.Error(), "password is wrong") {
		t.Errorf("a wrong password: %v", err)
	}
	if _, err := connect(time.Minute, "", ca); err == nil || !strings.Contains(err.Error(), "show the index's password") {
		t.Errorf("no password: %v", err)
	}
	// it is tried for as long as that; where the first handshake takes longer, nothing is known of
	// it
	for limit := 2 * time.Second; ; limit *= 2 {
		_, err := connect(limit, "secret", stranger)
		if err != nil && strings.Contains(err.Error(), "unknown authority") {
			break
		}
		if err == nil || limit > time.Minute {
			t.Fatalf("a server of another CA: %v", err)
		}
	}
}

func openTLS(t testing.TB, ca *identitytest.CA) *identity.Files {
	t.Helper()
	files, err := identity.Open(ca.Dir(identitytest.Options{URIs: []*url.URL{identity.Compute(computeservertest.Index)}}))
	if err != nil {
		t.Fatal(err)
	}
	return files
}
