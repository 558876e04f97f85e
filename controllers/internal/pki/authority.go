// Package pki makes the certificates of indexes and pools: an authority each, ECDSA on P-256.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// How long certificates are good. They are renewed when less than RenewBefore is left, and an
// authority is replaced when less than ReplaceBefore is.
const (
	AuthorityLife = 10 * 365 * 24 * time.Hour
	ReplaceBefore = 365 * 24 * time.Hour
	LeafLife      = 90 * 24 * time.Hour
	RenewBefore   = 30 * 24 * time.Hour
	backdate      = time.Hour // clocks of nodes differ
)

// Authority signs certificates.
type Authority struct {
	PEM []byte // its own certificate
	// Others are trusted beside it while one replaces the other: certificates in PEM form.
	Others [][]byte

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Trusted are the certificates of all that are trusted: its own, then the others.
func (a *Authority) Trusted() [][]byte { return append([][]byte{a.PEM}, a.Others...) }

// NotAfter is when the authority ends, and all that it signed.
func (a *Authority) NotAfter() time.Time { return a.cert.NotAfter }

// Early reports whether the authority was made by a clock that was ahead: it begins after now, and
// after it was stored, by another clock. Nobody accepts what it signed. One that begins after now
// but not after it was stored is good, and now is of a clock that is behind: what that would be
// replaced by would have ended before its time.
func (a *Authority) Early(now, stored time.Time) bool { return early(a.cert, now, stored) }

func early(c *x509.Certificate, now, stored time.Time) bool {
	return c.NotBefore.After(now) && c.NotBefore.After(stored)
}

// ID is how servers name the authority that signed their certificate.
func (a *Authority) ID() []byte { return a.cert.SubjectKeyId }

// Pair is a certificate and its key, in PEM form.
type Pair struct{ Cert, Key []byte }

// NewAuthority makes an authority.
func NewAuthority(name string, now time.Time) (Pair, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(AuthorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	return sign(template, nil)
}

// ParseAuthority reads what NewAuthority made.
func ParseAuthority(p Pair) (*Authority, error) {
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, fmt.Errorf("read a certificate authority: %w", err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA {
		return nil, errors.New("read a certificate authority: it is not one of the operator's; delete its Secret to get a new one")
	}
	return &Authority{PEM: p.Cert, cert: pair.Leaf, key: key}, nil
}

// Salt is a secret for a purpose that changes when the authority does. It says nothing of the
// authority's key.
func (a *Authority) Salt(purpose string) ([]byte, error) {
	key, err := a.key.Bytes()
	if err != nil {
		return nil, fmt.Errorf("make a secret for %s: %w", purpose, err)
	}
	return hkdf.Key(sha256.New, key, nil, "dmindex "+purpose, sha256.Size)
}

// sign makes a certificate; without an authority it signs itself.
func sign(template *x509.Certificate, by *Authority) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return Pair{}, err
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, fmt.Errorf("sign a certificate for %s: %w", template.Subject.CommonName, err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	}, nil
}
