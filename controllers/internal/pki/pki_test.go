package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/identity"
)

var now = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

func authority(t *testing.T, name string) *Authority {
	t.Helper()
	pair, err := NewAuthority(name, now)
	if err != nil {
		t.Fatal(err)
	}
	a, err := ParseAuthority(pair)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestReview: a certificate is replaced when it does not say what it should, and only then.
func TestReview(t *testing.T) {
	a, other := authority(t, "a"), authority(t, "other")
	leaf := Leaf{Name: "server", DNS: []string{"*.pool.ns.svc", "localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)},
		URI: identity.Compute("uid/1"), Server: true, Client: true}
	pair, err := a.Issue(leaf, now)
	if err != nil {
		t.Fatal(err)
	}
	f := func(by *Authority, change func(*Leaf), after time.Duration, want string) {
		t.Helper()
		l := leaf
		change(&l)
		got := by.Review(pair, l, now.Add(after), now)
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	same := func(*Leaf) {}
	f(a, same, 0, "")
	f(a, same, 59*24*time.Hour, "")
	f(a, same, 61*24*time.Hour, "it ends on 2027-02-19")
	f(other, same, 0, "another authority")
	f(a, func(l *Leaf) { l.DNS = []string{"*.pool.ns.svc"} }, 0, "other hosts")
	f(a, func(l *Leaf) { l.URI = identity.Compute("uid/2") }, 0, "another identity")
	f(a, func(l *Leaf) { l.URI = nil }, 0, "another identity")
	f(a, func(l *Leaf) { l.Client = false }, 0, "another use")
	for stored, want := range map[time.Duration]string{
		-48 * time.Hour: "it begins on 2026-11-20", // the clock was ahead when it was made
		0:               "",                        // the clock is behind now
	} {
		back := now.Add(-48 * time.Hour)
		if got := a.Review(pair, leaf, back, now.Add(stored)); got != want || a.Early(back, now.Add(stored)) != (want != "") {
			t.Errorf("stored at %v: %q, want %q", stored, got, want)
		}
	}
	if got := a.Review(Pair{}, leaf, now, now); got != "there is none yet" {
		t.Errorf("no certificate: %q", got)
	}
	if got := a.Review(Pair{Cert: pair.Cert, Key: []byte("x")}, leaf, now, now); !strings.Contains(got, "cannot be read") {
		t.Errorf("a broken key: %q", got)
	}
	if got := RenewAfter(pair.Cert, now); got != LeafLife-RenewBefore {
		t.Errorf("renew after %v", got)
	}
}

// TestHandshake: a client of one authority and a server of it accept each other, by wildcard name,
// and read the identity.
func TestHandshake(t *testing.T) {
	a := authority(t, "a")
	server, err := a.Issue(Leaf{Name: "server", DNS: []string{"*.pool.ns.svc"}, Server: true}, now)
	if err != nil {
		t.Fatal(err)
	}
	client, err := a.Issue(Leaf{Name: "operator", URI: identity.Operator(), Client: true}, now)
	if err != nil {
		t.Fatal(err)
	}
	handshake := func(name string) (identity.Identity, error) {
		config, err := a.ClientConfig(client, name)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := tls.X509KeyPair(server.Cert, server.Key)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(Bundle(a.PEM, a.PEM))
		clock := func() time.Time { return now }
		config.Time = clock
		listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert, Time: clock})
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		type outcome struct {
			id  identity.Identity
			err error
		}
		seen := make(chan outcome, 1)
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				seen <- outcome{err: err}
				return
			}
			defer conn.Close()
			accepted := conn.(*tls.Conn)
			if err := accepted.Handshake(); err != nil {
				seen <- outcome{err: err}
				return
			}
			id, err := identity.FromCertificate(accepted.ConnectionState().PeerCertificates[0])
			seen <- outcome{id, err}
		}()
		conn, err := tls.Dial("tcp", listener.Addr().String(), config)
		if err != nil {
			return identity.Identity{}, err
		}
		defer conn.Close()
		got := <-seen
		return got.id, got.err
	}
	id, err := handshake("pool-0.pool.ns.svc")
	if err != nil || id.Role != identity.RoleOperator {
		t.Errorf("got %v, %v", id, err)
	}
	if _, err := handshake("pool-0.other.ns.svc"); err == nil {
		t.Error("a server of another name was accepted")
	}
}

// TestBundle is sorted and has each certificate once, so that it changes only when its content
// does.
func TestBundle(t *testing.T) {
	if got := string(Bundle([]byte("b\n"), []byte("a\n"), []byte("b\n"))); got != "a\nb\n" {
		t.Errorf("got %q", got)
	}
}
