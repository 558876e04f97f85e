package tcp_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/tcp"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// certificate is a fresh one for 127.0.0.1, and a pool that trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// TestConformanceTLS runs the suite under TLS. Its network ends TLS and begins it anew, so the end
// of a stream comes as a record behind others, which TLS reads ahead.
func TestConformanceTLS(t *testing.T) {
	mine, pool := certificate(t)
	startTLS := func(_ string, o verbs.ServerOptions) (address string, s verbs.Server, err error) {
		o.TLS = &tls.Config{Certificates: []tls.Certificate{mine}}
		if s, err = tcp.NewServer(o); err != nil {
			return "", nil, err
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", nil, err
		}
		go s.Serve(l)
		return l.Addr().String(), s, nil
	}
	trusts := func(roots *x509.CertPool) verbs.Device {
		return tcp.NewTLSDevice(func(server string) *tls.Config { return &tls.Config{RootCAs: roots, ServerName: server} })
	}
	device := func() verbs.Device { return trusts(pool) }
	network := func(t testing.TB, address string) verbstest.Network {
		server := &tls.Config{Certificates: []tls.Certificate{mine}}
		return verbstest.NewTLSNetwork(t, address, server, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"})
	}
	verbstest.Run(t, verbstest.Harness{Device: device, Start: startTLS, Network: network, Rounds: 500})

	t.Run("UnknownServer", func(t *testing.T) {
		var tokens verbstest.Tokens
		address, s, err := startTLS("", verbs.ServerOptions{Memory: verbstest.Memory(t, 4096, 4096), Admission: &tokens})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		_, other := certificate(t)
		target := verbs.Target{Address: address, Token: tokens.Issue(verbs.Peer{Client: 1})}
		_, err = trusts(other).Connect(target, 20*time.Second)
		var unknown x509.UnknownAuthorityError
		if !errors.As(err, &unknown) {
			t.Errorf("connect to a server of an unknown authority: %v", err)
		}
		// the token was not shown, so it is still good
		c, err := device().Connect(target, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
