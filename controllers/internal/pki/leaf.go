package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"
)

// Leaf is what a certificate shall say.
type Leaf struct {
	Name   string
	DNS    []string // a server goes by these names
	IPs    []net.IP
	URI    *url.URL // who a client is, as in pkg/identity
	Server bool
	Client bool
}

func (l Leaf) usages() (usages []x509.ExtKeyUsage) {
	if l.Server {
		usages = append(usages, x509.ExtKeyUsageServerAuth)
	}
	if l.Client {
		usages = append(usages, x509.ExtKeyUsageClientAuth)
	}
	return usages
}

// Issue makes a certificate.
func (a *Authority) Issue(l Leaf, now time.Time) (Pair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: l.Name},
		NotBefore:   now.Add(-backdate),
		NotAfter:    a.leafEnd(now),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: l.usages(),
		DNSNames:    l.DNS,
		IPAddresses: l.IPs,
	}
	if l.URI != nil {
		template.URIs = []*url.URL{l.URI}
	}
	return sign(template, a)
}

// leafEnd is until when a certificate is good that is signed now: its authority's end is also its
// own.
func (a *Authority) leafEnd(now time.Time) time.Time {
	if end := now.Add(LeafLife); end.Before(a.cert.NotAfter) {
		return end
	}
	return a.cert.NotAfter
}

// Review says why a certificate must be replaced by a new one; empty if it is good. stored is when
// it was stored, by another clock than now: see Early.
func (a *Authority) Review(p Pair, l Leaf, now, stored time.Time) (reason string) {
	if len(p.Cert) == 0 || len(p.Key) == 0 {
		return "there is none yet"
	}
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return "it cannot be read: " + err.Error()
	}
	cert := pair.Leaf
	var uris []string
	for _, u := range cert.URIs {
		uris = append(uris, u.String())
	}
	var wantURIs []string
	if l.URI != nil {
		wantURIs = []string{l.URI.String()}
	}
	switch {
	case cert.CheckSignatureFrom(a.cert) != nil:
		return "it was signed by another authority"
	case !slices.Equal(cert.DNSNames, l.DNS) || !slices.EqualFunc(cert.IPAddresses, l.IPs, net.IP.Equal):
		return "it names other hosts"
	case !slices.Equal(uris, wantURIs):
		return "it carries another identity"
	case !slices.Equal(cert.ExtKeyUsage, l.usages()):
		return "it is for another use"
	case early(cert, now, stored):
		return fmt.Sprintf("it begins on %s", cert.NotBefore.UTC().Format(time.DateOnly))
	case cert.NotAfter.Sub(now) < RenewBefore && cert.NotAfter.Before(a.leafEnd(now).Truncate(time.Second)):
		return fmt.Sprintf("it ends on %s", cert.NotAfter.UTC().Format(time.DateOnly))
	}
	return ""
}

// RenewAfter is how long a certificate of Issue can stay as it is.
func RenewAfter(certPEM []byte, now time.Time) time.Duration {
	p, err := Parse(certPEM)
	if err != nil {
		return 0
	}
	return max(0, p.NotAfter.Add(-RenewBefore).Sub(now))
}

// Bundle joins certificates to a file of trusted ones: sorted, each once.
func Bundle(certs ...[]byte) []byte {
	sorted := slices.Clone(certs)
	slices.SortFunc(sorted, bytes.Compare)
	return bytes.Join(slices.CompactFunc(sorted, bytes.Equal), nil)
}

// ClientConfig is a TLS configuration of a client with a certificate of a, for a server with one of
// a or of another authority that is trusted.
func (a *Authority) ClientConfig(p Pair, serverName string) (*tls.Config, error) {
	cert, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	for _, other := range a.Others {
		cert, err := Parse(other)
		if err != nil {
			return nil, err
		}
		roots.AddCert(cert)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		ServerName:   serverName,
		Certificates: []tls.Certificate{cert},
		RootCAs:      roots,
	}, nil
}
