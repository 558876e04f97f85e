package identity_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
)

func open(t *testing.T, dir string) *identity.Files {
	t.Helper()
	f, err := identity.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// handshake connects a client to a server over TLS and returns who the server saw, or why either
// end refused.
func handshake(t *testing.T, server *tls.Config, client *tls.Config) (identity.Identity, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	type result struct {
		id  identity.Identity
		err error
	}
	saw := make(chan result, 1)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			saw <- result{err: err}
			return
		}
		defer raw.Close()
		c := tls.Server(raw, server)
		c.SetDeadline(time.Now().Add(time.Minute))
		var r result
		if r.err = c.Handshake(); r.err == nil {
			r.id, r.err = identity.FromCertificate(c.ConnectionState().PeerCertificates[0])
		}
		saw <- r
	}()
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Minute}, "tcp", l.Addr().String(), client)
	if err == nil {
		c.SetDeadline(time.Now().Add(time.Minute))
		// under TLS 1.3 the server's refusal comes after the client's handshake
		_, err = c.Read(make([]byte, 1))
		c.Close()
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	r := <-saw
	return r.id, errors.Join(err, r.err)
}

func TestHandshakes(t *testing.T) {
	ours, theirs := identitytest.NewCA(t, "ours"), identitytest.NewCA(t, "theirs")
	operator := []*url.URL{identity.Operator()}
	server := open(t, ours.Dir(identitytest.Options{}))
	client := open(t, ours.Dir(identitytest.Options{URIs: operator}))

	f := func(what string, server, client *tls.Config, want string) {
		t.Helper()
		id, err := handshake(t, server, client)
		if want == "" {
			if err != nil || id.Role != identity.RoleOperator {
				t.Errorf("%s: %v, %v", what, id, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v does not say %q", what, err, want)
		}
	}
	f("good", server.ServerConfig(), client.ClientConfig("localhost"), "")

	expired := open(t, ours.Dir(identitytest.Options{URIs: operator, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}))
	f("expired client", server.ServerConfig(), expired.ClientConfig("localhost"), "expired")
	f("expired server", expired.ServerConfig(), client.ClientConfig("localhost"), "expired")
	early := open(t, ours.Dir(identitytest.Options{URIs: operator, NotBefore: time.Now().Add(time.Hour), NotAfter: time.Now().Add(2 * time.Hour)}))
	f("client of tomorrow", server.ServerConfig(), early.ClientConfig("localhost"), "not yet valid")

	dir := t.TempDir()
	theirs.Write(dir, identitytest.Options{URIs: operator}, ours)
	f("client of another CA", server.ServerConfig(), open(t, dir).ClientConfig("localhost"), "certificate required")
	f("client of another CA that insists", server.ServerConfig(), func() *tls.Config {
		c := open(t, dir).ClientConfig("localhost")
		cert := c.Certificates[0]
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
		return c
	}(), "unknown authority")
	f("server of another CA", server.ServerConfig(), open(t, theirs.Dir(identitytest.Options{URIs: operator})).ClientConfig("localhost"), "unknown authority")
	f("client without certificate", server.ServerConfig(), func() *tls.Config {
		c := client.ClientConfig("localhost")
		c.Certificates = nil
		return c
	}(), "certificate")
	f("client without identity", server.ServerConfig(), open(t, ours.Dir(identitytest.Options{})).ClientConfig("localhost"), "no dmindex identity")
	f("client with two identities", server.ServerConfig(),
		open(t, ours.Dir(identitytest.Options{URIs: []*url.URL{identity.Operator(), identity.Index("a")}})).ClientConfig("localhost"), "one certificate for each")
	f("server of another name", server.ServerConfig(), client.ClientConfig("elsewhere"), "elsewhere")
	f("old TLS", server.ServerConfig(), func() *tls.Config {
		c := client.ClientConfig("localhost")
		c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		return c
	}(), "protocol version")
}

// TestReload replaces the CA in the way a user does it: a bundle of both, new certificates, a
// bundle of the new one alone. Files in the middle of an update change nothing.
func TestReload(t *testing.T) {
	old, next := identitytest.NewCA(t, "old"), identitytest.NewCA(t, "next")
	operator := identitytest.Options{URIs: []*url.URL{identity.Operator()}}
	serverDir, clientDir := old.Dir(identitytest.Options{}), old.Dir(operator)
	files, clients := open(t, serverDir), open(t, clientDir)
	server := files.ServerConfig()
	good := func(what string) {
		t.Helper()
		if _, err := handshake(t, server, clients.ClientConfig("localhost")); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	// Two writes can fall into one tick of the file system's clock, and certificates be of one
	// length; a Secret's update cannot.
	second := 0
	write := func(ca *identitytest.CA, dir string, o identitytest.Options, trusted ...*identitytest.CA) {
		t.Helper()
		ca.Write(dir, o, trusted...)
		second++
		for _, name := range []string{identity.CertFile, identity.KeyFile, identity.CAFile} {
			at := time.Now().Add(time.Duration(second) * time.Second)
			if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	good("at first")
	write(old, serverDir, identitytest.Options{}, old, next)
	write(old, clientDir, operator, old, next)
	good("with both CAs trusted")
	before := files.NotAfter()
	write(next, serverDir, identitytest.Options{NotAfter: time.Now().Add(3 * time.Hour)}, old, next)
	good("new server certificate")
	if !files.NotAfter().After(before) {
		t.Error("the old certificate is in force")
	}
	stale := clients.ClientConfig("localhost") // of the old CA
	write(next, clientDir, operator, next)
	write(next, serverDir, identitytest.Options{}, next)
	good("new CA alone")
	if _, err := handshake(t, server, stale); err == nil {
		t.Error("a certificate of the old CA is still accepted")
	}

	if err := os.WriteFile(filepath.Join(serverDir, identity.KeyFile), []byte("half a k"), 0o600); err != nil {
		t.Fatal(err)
	}
	good("broken key file")
	if files.Err() == nil {
		t.Error("nothing is said of the broken key file")
	}
	if err := os.Remove(filepath.Join(serverDir, identity.CAFile)); err != nil {
		t.Fatal(err)
	}
	good("missing CA file")
	if files.Err() == nil {
		t.Error("nothing is said of the missing CA file")
	}
	write(next, serverDir, identitytest.Options{}, next)
	good("mended")
	if err := files.Err(); err != nil {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	ca := identitytest.NewCA(t, "ca")
	f := func(want string, spoil func(dir string) error) {
		t.Helper()
		dir := ca.Dir(identitytest.Options{})
		if err := spoil(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := identity.Open(dir); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	f(identity.KeyFile, func(dir string) error { return os.Remove(filepath.Join(dir, identity.KeyFile)) })
	f("PEM", func(dir string) error { return os.WriteFile(filepath.Join(dir, identity.CAFile), []byte("no"), 0o600) })
	for _, bad := range []string{"everybody", "dmindex://operator", "dmindex://pool/m.ns.svc", "dmindex://index/a/compute"} {
		f(identity.FabricFile, func(dir string) error {
			return os.WriteFile(filepath.Join(dir, identity.FabricFile), []byte("dmindex://index/a\n"+bad), 0o600)
		})
	}
	f("does not match", func(dir string) error {
		_, key := ca.Issue(identitytest.Options{})
		return os.WriteFile(filepath.Join(dir, identity.KeyFile), key, 0o600)
	})
}
