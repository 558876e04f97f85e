// Package identitytest makes certificate authorities and TLS directories for tests.
package identitytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/identity"
)

// CA issues certificates.
type CA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	PEM  []byte // its certificate
}

// Options of a certificate; the zero value names localhost and is good for an hour.
type Options struct {
	URIs      []*url.URL
	NotBefore time.Time
	NotAfter  time.Time
	DNSNames  []string
}

// NewCA makes an authority.
func NewCA(t testing.TB, name string) *CA {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check(t, err)
	cert, err := x509.ParseCertificate(der)
	check(t, err)
	return &CA{t, cert, key, encode("CERTIFICATE", der)}
}

// Issue makes a certificate and its key, both PEM.
func (ca *CA) Issue(o Options) (cert, key []byte) {
	ca.t.Helper()
	private := newKey(ca.t)
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	check(ca.t, err)
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "test"},
		NotBefore:    o.NotBefore,
		NotAfter:     o.NotAfter,
		URIs:         o.URIs,
		DNSNames:     append([]string{"localhost"}, o.DNSNames...),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	if o.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour)
	}
	if o.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, private.Public(), ca.key)
	check(ca.t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	check(ca.t, err)
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", keyDER)
}

// Dir is a new TLS directory with a certificate of this authority that trusts this authority.
func (ca *CA) Dir(o Options) string {
	ca.t.Helper()
	dir := ca.t.TempDir()
	ca.Write(dir, o, ca)
	return dir
}

// Write puts a new certificate into a TLS directory that trusts the given authorities.
func (ca *CA) Write(dir string, o Options, trusted ...*CA) {
	ca.t.Helper()
	cert, key := ca.Issue(o)
	var bundle []byte
	for _, t := range trusted {
		bundle = append(bundle, t.PEM...)
	}
	for name, data := range map[string][]byte{identity.CertFile: cert, identity.KeyFile: key, identity.CAFile: bundle} {
		check(ca.t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
}

// SpeaksFor is the authority as an entry of identity.AuthoritiesFile.
func (ca *CA) SpeaksFor(uris ...*url.URL) identity.Authority {
	return identity.Authority{PEM: ca.PEM, For: uris}
}

// WriteAuthorities puts an identity.AuthoritiesFile into a TLS directory.
func WriteAuthorities(t testing.TB, dir string, all ...identity.Authority) {
	t.Helper()
	data, err := identity.AppendAuthorities(nil, all...)
	check(t, err)
	check(t, os.WriteFile(filepath.Join(dir, identity.AuthoritiesFile), data, 0o600))
}

// Insistent is a TLS configuration of a client that shows a certificate of ca with these URIs,
// whatever authorities the server asks for, and accepts any server: the server must refuse.
func (ca *CA) Insistent(uris ...*url.URL) *tls.Config {
	ca.t.Helper()
	cert, err := tls.X509KeyPair(ca.Issue(Options{URIs: uris}))
	check(ca.t, err)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, InsecureSkipVerify: true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil },
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	return key
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
