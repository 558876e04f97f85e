package identity_test

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
)

// claims are all that a certificate can say, of two indexes, one of which was made anew.
func claims() []*url.URL {
	return []*url.URL{
		identity.Operator(),
		identity.Index("a"), identity.Compute("a"), identity.Index("a/2"), identity.Compute("a/2"),
		identity.Index("b"), identity.Compute("b"), identity.Compute("ab"), identity.Compute("b/a"),
		identity.Pool("p.ns.svc"), nil,
	}
}

// TestAuthorities tries every claim by every authority: one counts only where its authority speaks
// for it.
func TestAuthorities(t *testing.T) {
	pool, a, next, b := identitytest.NewCA(t, "pool"), identitytest.NewCA(t, "a"), identitytest.NewCA(t, "a"), identitytest.NewCA(t, "b")
	both, stranger := identitytest.NewCA(t, "both"), identitytest.NewCA(t, "pool")
	dir := t.TempDir()
	pool.Write(dir, identitytest.Options{}, pool, a, next, b, both, stranger) // not used
	identitytest.WriteAuthorities(t, dir,
		pool.SpeaksFor(identity.Operator()), a.SpeaksFor(identity.Index("a")), next.SpeaksFor(identity.Index("a")),
		b.SpeaksFor(identity.Index("b")), both.SpeaksFor(identity.Operator()), both.SpeaksFor(identity.Index("a")))
	server := open(t, dir)
	f := func(what string, ca *identitytest.CA, want ...string) {
		t.Helper()
		for _, claim := range claims() {
			name, uris := "nobody", []*url.URL(nil)
			if claim != nil {
				name, uris = claim.String(), []*url.URL{claim}
			}
			should := false
			for _, w := range want {
				should = should || w == name
			}
			id, err := handshake(t, server.ServerConfig(), ca.Insistent(uris...))
			if should && (err != nil || id.URI().String() != name) {
				t.Errorf("%s says %s: %v, %v", what, name, id, err)
			}
			if !should && err == nil {
				t.Errorf("%s says %s, and is believed", what, name)
			}
		}
	}
	ofA := []string{"dmindex://index/a", "dmindex://index/a/compute", "dmindex://index/a%2F2", "dmindex://index/a%2F2/compute"}
	f("the pool's authority", pool, "dmindex://operator")
	f("an index's authority", a, ofA...)
	f("its next authority", next, ofA...)
	f("another index's authority", b, "dmindex://index/b", "dmindex://index/b/compute", "dmindex://index/b%2Fa/compute")
	f("an authority of both", both, append(ofA, "dmindex://operator")...)
	f("an authority of the pool's name", stranger)
}

// TestServers dials servers: a memory server's certificate counts only by the authority of its
// pool, a compute server's only by its index's.
func TestServers(t *testing.T) {
	p, q, index := identitytest.NewCA(t, "p"), identitytest.NewCA(t, "q"), identitytest.NewCA(t, "index")
	dir := t.TempDir()
	index.Write(dir, identitytest.Options{URIs: []*url.URL{identity.Compute("a")}}, p, q, index)
	identitytest.WriteAuthorities(t, dir,
		p.SpeaksFor(identity.Pool("p.ns.svc"), identity.Pool("p.ns.svc.cluster.local")), q.SpeaksFor(identity.Pool("q.ns.svc")),
		index.SpeaksFor(identity.Operator(), identity.Index("a")))
	client := open(t, dir)
	f := func(ca *identitytest.CA, host string, memory bool) {
		t.Helper()
		server := open(t, func() string {
			dir := t.TempDir()
			ca.Write(dir, identitytest.Options{DNSNames: []string{host}}, index)
			return dir
		}())
		_, err := handshake(t, server.ServerConfig(), client.ClientConfig(host))
		if memory && err != nil || !memory && (err == nil || !strings.Contains(err.Error(), "does not speak for")) {
			t.Errorf("%s: %v", host, err)
		}
	}
	f(p, "p-0.p.ns.svc", true)
	f(p, "p-0.p.ns.svc.cluster.local", true)
	f(p, "p.ns.svc", false)
	f(p, "xp.ns.svc", false)
	f(p, "q-0.q.ns.svc", false)
	f(q, "q-0.q.ns.svc", true)
	f(q, "q-0.q.ns.svc.cluster.local", false)
	f(index, "p-0.p.ns.svc", false)
	f(index, "localhost", false)
}

// TestAuthoritiesFile: what is not understood spoils the file, and the former content stays.
func TestAuthoritiesFile(t *testing.T) {
	ca := identitytest.NewCA(t, "ca")
	dir := ca.Dir(identitytest.Options{})
	file := filepath.Join(dir, identity.AuthoritiesFile)
	f := func(want, content string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := identity.Open(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	with := func(header string) string {
		return strings.Replace(string(ca.PEM), "-----BEGIN CERTIFICATE-----\n", "-----BEGIN CERTIFICATE-----\n"+header+"\n\n", 1)
	}
	if err := os.WriteFile(file, []byte(with("Speaks-For: dmindex://operator dmindex://index/a dmindex://pool/x.svc")), 0o600); err != nil {
		t.Fatal(err)
	}
	files := open(t, dir)
	f("no certificate", "")
	f("no certificate", "no")
	f("Speaks-For", string(ca.PEM))
	f("Speaks-For", with("Speaks-For:"))
	f("Speaks-For", with("Speaks-for: dmindex://operator"))
	f("no other", with("Also: x\nSpeaks-For: dmindex://operator"))
	f("neither", with("Speaks-For: dmindex://somebody"))
	f("neither", with("Speaks-For: dmindex://pool/"))
	f("neither", with("Speaks-For: *"))
	f("possible", with("Speaks-For: dmindex://index/a/compute"))
	f("Speaks-For", with("Speaks-For: dmindex://operator")+string(ca.PEM))
	if _, err := handshake(t, files.ServerConfig(), ca.Insistent(identity.Index("a"))); err != nil {
		t.Errorf("beside a spoiled file: %v", err)
	}
	if _, err := handshake(t, files.ServerConfig(), ca.Insistent(identity.Index("b"))); err == nil {
		t.Error("a spoiled file lets an authority say anything")
	}
	if err := files.Err(); err == nil {
		t.Error("nothing is said of the spoiled file")
	}
	if _, err := identity.AppendAuthorities(nil, identity.Authority{PEM: []byte("no")}); err == nil {
		t.Error("an authority without a certificate")
	}
}
