package memserver

import (
	"crypto/tls"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/tcp"
)

// fabricServer is a server with indexes a and b, each with an authority of its own.
func fabricServer(t *testing.T, change func(*Config)) (s *Server, member func(index string, uri *url.URL) *identity.Files, dir string) {
	t.Helper()
	own := identitytest.NewCA(t, "pool")
	ca := map[string]*identitytest.CA{"a": identitytest.NewCA(t, "a"), "b": identitytest.NewCA(t, "b")}
	c := localConfig(t)
	c.Insecure, c.Shm, c.TLSDir = false, "", t.TempDir()
	own.Write(c.TLSDir, identitytest.Options{}, own)
	identitytest.WriteAuthorities(t, c.TLSDir, own.SpeaksFor(identity.Operator()),
		ca["a"].SpeaksFor(identity.Index("a")), ca["b"].SpeaksFor(identity.Index("b")))
	if change != nil {
		change(&c)
	}
	s, _ = start(t, c)
	operator := dialTLS(t, s.Addresses().Control, own.Insistent(identity.Operator()))
	for index := range ca {
		must(operator.Admit(t.Context(), &rpcv1.AdmitRequest{Index: index, QuotaChunks: 2}))
	}
	return s, func(index string, uri *url.URL) *identity.Files {
		dir := t.TempDir()
		ca[index].Write(dir, identitytest.Options{URIs: []*url.URL{uri}}, own)
		return must(identity.Open(dir))
	}, c.TLSDir
}

// caller is the control path of an index's member.
func caller(t *testing.T, s *Server, index string, files *identity.Files, overTLS bool) (c *control.Client, id uint32) {
	t.Helper()
	c = must(control.New(control.Config{Index: index, TLS: files, Servers: []control.Server{{ID: 7, Control: s.Addresses().Control, Provider: "tcp", TLS: overTLS}}}))
	t.Cleanup(func() { c.Close() })
	return c, must(c.Register(limit))
}

func overTLS(files *identity.Files) verbs.Device {
	return tcp.NewTLSDevice(func(server string) *tls.Config { return files.ClientConfig(server, tcp.Protocol) })
}

// TestFabricTLS: a token admits a connection of the kind that it was asked for, and under TLS only
// one of the identity that it was given to. Clients under TLS and others share the server.
func TestFabricTLS(t *testing.T) {
	s, member, _ := fabricServer(t, nil)
	mine, program, others := member("a", identity.Compute("a")), member("a", identity.Index("a")), member("b", identity.Compute("b"))
	tlsClient, id := caller(t, s, "a", mine, true)
	plain, plainID := caller(t, s, "b", others, false)

	refused := func(what string, d verbs.Device, target verbs.Target) {
		t.Helper()
		if c, err := d.Connect(target, limit); !errors.Is(err, verbs.ErrRefused) && !errors.Is(err, verbs.ErrDisconnected) {
			t.Errorf("%s: %v", what, err)
			if err == nil {
				c.Close()
			}
		}
	}
	grant := must(tlsClient.Connect(7, id, limit))
	refused("in the clear", tcp.NewDevice(), grant.Target)
	refused("with a certificate of another index", overTLS(others), grant.Target)
	refused("with another identity of the index", overTLS(program), grant.Target)
	refused("without a certificate", tcp.NewTLSDevice(func(string) *tls.Config {
		return &tls.Config{InsecureSkipVerify: true}
	}), grant.Target)
	stranger := identitytest.NewCA(t, "a").Dir(identitytest.Options{URIs: []*url.URL{identity.Compute("a")}})
	refused("with a certificate of an authority of that name", tcp.NewTLSDevice(func(server string) *tls.Config {
		c := must(identity.Open(stranger)).ClientConfig(server)
		c.InsecureSkipVerify, c.VerifyConnection = true, nil
		return c
	}), grant.Target)
	// none of them has used the token up
	conn := must(overTLS(mine).Connect(grant.Target, limit))
	refused("again", overTLS(mine), grant.Target)

	grant = must(plain.Connect(7, plainID, limit))
	refused("under TLS, with a token for the clear", overTLS(others), grant.Target)
	clear := must(tcp.NewDevice().Connect(grant.Target, limit))
	for _, c := range []verbs.Conn{conn, clear} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestFabricTLSRequired: an index whose clients must come under TLS gets no token for the clear,
// from when the file says so. The other index does.
func TestFabricTLSRequired(t *testing.T) {
	s, member, dir := fabricServer(t, nil)
	mine, others := member("a", identity.Compute("a")), member("b", identity.Compute("b"))
	plain, id := caller(t, s, "a", mine, false)
	secure, secureID := caller(t, s, "a", mine, true)
	other, otherID := caller(t, s, "b", others, false)
	must(plain.Connect(7, id, limit))
	file := identity.AppendFabric(nil, identity.Index("a"))
	if err := os.WriteFile(filepath.Join(dir, identity.FabricFile), file, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := plain.Connect(7, id, limit); !errors.Is(err, verbs.ErrRefused) || !strings.Contains(err.Error(), "fabricTLS") {
		t.Errorf("in the clear: %v", err)
	}
	must(secure.Connect(7, secureID, limit))
	must(other.Connect(7, otherID, limit))
}

// TestFabricTLSOfAll: a server can require TLS of everybody, and has no transport then that has
// none.
func TestFabricTLSOfAll(t *testing.T) {
	s, member, _ := fabricServer(t, func(c *Config) { c.FabricTLS = true })
	mine := member("b", identity.Compute("b"))
	plain, id := caller(t, s, "b", mine, false)
	if _, err := plain.Connect(7, id, limit); !errors.Is(err, verbs.ErrRefused) {
		t.Errorf("in the clear: %v", err)
	}
	for what, change := range map[string]func(*Config){
		"without TLS": func(c *Config) { c.Shm = "" },
		"with shm":    func(c *Config) { c.Insecure, c.TLSDir = false, t.TempDir() },
		"no fabric":   func(c *Config) { c.Insecure, c.TLSDir, c.Fabric = false, t.TempDir(), "" },
	} {
		c := localConfig(t)
		c.FabricTLS = true
		change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), "FabricTLS") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestNoFabricTLS: a server without certificates says so to whoever asks for TLS.
func TestNoFabricTLS(t *testing.T) {
	s, _ := start(t, localConfig(t))
	must(admin(t, s.Addresses().Control, nil).Admit(t.Context(), &rpcv1.AdmitRequest{Index: "a", QuotaChunks: 1}))
	c, id := caller(t, s, "a", nil, true)
	if grant, err := c.Connect(7, id, limit); err == nil || !strings.Contains(err.Error(), "no TLS") {
		t.Errorf("%v, %v", grant == pool.Grant{}, err)
	}
}
