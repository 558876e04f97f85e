package computeserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/resp"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
)

// respCluster is a server with a password that speaks RESP under TLS, with the certificate of dir.
func respCluster(t *testing.T, optional bool, adjust func(*Config)) (c *cluster, ca *identitytest.CA, dir string) {
	t.Helper()
	ca = identitytest.NewCA(t, "ca")
	dir = ca.Dir(identitytest.Options{})
	pair, err := identity.OpenPair(dir)
	if err != nil {
		t.Fatal(err)
	}
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	return newCluster(t, config.RoutingAny, func(c *Config) {
		c.RESPTLS, c.Users.PasswordFile = &resp.TLS{Config: pair.ServerConfig(), Optional: optional}, password
		if adjust != nil {
			adjust(c)
		}
	}, 1), ca, dir
}

// trusts is a client's configuration.
func trusts(ca *identitytest.CA) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM)
	return &tls.Config{RootCAs: roots, ServerName: "localhost"}
}

// dialRESP is a connection under TLS, and the serial of the server's certificate.
func (c *cluster) dialRESP(ca *identitytest.CA) (r *computeservertest.Conn, serial string) {
	c.t.Helper()
	conn, err := tls.Dial("tcp", c.servers[1].addresses.RESP, trusts(ca))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	return &computeservertest.Conn{T: c.t, NC: conn}, conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// TestRESPTLS: usual clients under TLS, with values of more than a record; nobody else.
func TestRESPTLS(t *testing.T) {
	c, ca, _ := respCluster(t, false, nil)
	address := c.servers[1].addresses.RESP
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, ca.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	secure := []string{"--tls", "--cacert", file, "--no-auth-warning", "-a", "secret"}
	for _, f := range []struct {
		want string
		args []string
	}{{"OK", []string{"set", "apple", "red"}}, {"red", []string{"get", "apple"}}, {"apple\nred", []string{"range", "", ""}}} {
		if got := strings.TrimSuffix(c.tool(1, "redis-cli", append(secure, f.args...)...), "\n"); got != f.want {
			t.Errorf("redis-cli %v printed %q, want %q", f.args, got, f.want)
		}
	}
	connect := func(config *tls.Config) *redis.Client {
		r := redis.NewClient(&redis.Options{Addr: address, Password: "secret", TLSConfig: config, DialTimeout: time.Minute, ReadTimeout: time.Minute, MaxRetries: -1})
		t.Cleanup(func() { _ = r.Close() })
		return r
	}
	ctx := context.Background()
	r := connect(trusts(ca))
	long := strings.Repeat("x", 2000)
	pipe := r.Pipeline()
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"} {
		pipe.Set(ctx, key, long, 0)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	if all, err := r.MGet(ctx, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l").Result(); err != nil || len(all) != 12 || all[11] != long {
		t.Errorf("%d values, %v", len(all), err)
	}
	var unknown x509.UnknownAuthorityError
	if err := connect(trusts(identitytest.NewCA(t, "ca"))).Ping(ctx).Err(); !errors.As(err, &unknown) {
		t.Errorf("a client that trusts others: %v", err)
	}
	if err := connect(nil).Ping(ctx).Err(); err == nil {
		t.Error("a client in the clear is served")
	}
	plain := c.raw(1)
	plain.Send("auth secret\r\n" + strings.Repeat("get apple\r\n", 1000))
	if got := plain.ExpectEnd(); !strings.HasPrefix(got, "-ERR ") || !strings.Contains(got, "rediss://") {
		t.Errorf("a client in the clear is told %q", got)
	}
}

// TestRESPTLSOptional: while programs change over, both kinds are served.
func TestRESPTLSOptional(t *testing.T) {
	c, ca, _ := respCluster(t, true, nil)
	plain := c.raw(1)
	plain.Send("auth secret\r\nset a 1\r\n")
	plain.Expect("+OK\r\n+OK\r\n")
	secure, _ := c.dialRESP(ca)
	secure.Send("auth secret\r\nget a\r\n")
	secure.Expect("+OK\r\n$1\r\n1\r\n")
}

// TestRESPTLSReload: a certificate that changes is shown from the next handshake on; connections
// that are there go on, and one that cannot be read changes nothing.
func TestRESPTLSReload(t *testing.T) {
	c, ca, dir := respCluster(t, false, nil)
	first, one := c.dialRESP(ca)
	ca.Write(dir, identitytest.Options{}, ca)
	second, two := c.dialRESP(ca)
	if one == two {
		t.Error("the former certificate is shown")
	}
	if err := os.WriteFile(filepath.Join(dir, identity.KeyFile), []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	third, three := c.dialRESP(ca)
	if two != three {
		t.Error("another certificate is shown")
	}
	for _, r := range []*computeservertest.Conn{first, second, third} {
		r.Send("auth secret\r\nping\r\n")
		r.Expect("+OK\r\n+PONG\r\n")
	}
}

// TestRESPTLSStrangers: who begins TLS and goes no further has the time of those who have not
// authenticated, and holds up nobody's end.
func TestRESPTLSStrangers(t *testing.T) {
	silent := func(c *cluster, send string) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", c.servers[1].addresses.RESP)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := conn.Write([]byte(send)); err != nil {
			t.Fatal(err)
		}
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		return conn
	}
	begun := []string{"", "\x16", "\x16\x03\x01\x02\x00"}
	for _, optional := range []bool{false, true} {
		c, _, _ := respCluster(t, optional, func(c *Config) { c.AuthLimit = 50 * time.Millisecond })
		for _, send := range begun {
			if n, err := silent(c, send).Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("optional %v: %q stays: %d, %v", optional, send, n, err)
			}
		}
		c.stop(1)
		// without a password nobody waits in the lobby: the handshake has a limit all the same
		c, _, _ = respCluster(t, optional, func(c *Config) {
			c.AuthLimit, c.Users.PasswordFile, c.AllowNoPassword = 50*time.Millisecond, "", true
		})
		for _, send := range begun {
			if n, err := silent(c, send).Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("optional %v, no password: %q stays: %d, %v", optional, send, n, err)
			}
		}
		c.stop(1)
		c, ca, _ := respCluster(t, optional, func(c *Config) { c.AuthLimit = time.Hour })
		for _, send := range begun {
			silent(c, send)
		}
		secure, _ := c.dialRESP(ca)
		secure.Send("auth secret\r\n")
		secure.Expect("+OK\r\n")
		began := time.Now()
		c.stop(1)
		if took := time.Since(began); took > 10*time.Second { // DrainLimit is 20 s
			t.Errorf("the end took %v", took)
		}
	}
}
