package identity

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// AuthoritiesFile is the file of a TLS directory that says which authority speaks for whom: PEM
// blocks of certificates, each with a header
//
//	Speaks-For: dmindex://operator dmindex://index/<object>
//
// of one or more URIs. Where the file is, CAFile is not used, and a certificate counts only if the
// authority that signed it speaks for what the certificate says:
//
//	dmindex://operator        the operator, and memory servers that send others their changes
//	dmindex://index/<object>  clients and compute servers of the index <object>, and of the
//	                          identities <object>/... that it gets when it is made anew; and
//	                          compute servers that are dialled
//	dmindex://pool/<domain>   servers whose host name is below <domain>: memory servers
//
// An authority is its whole certificate. Several may speak for the same, while one is replaced.
// Without the file, every authority of CAFile speaks for everybody: that is for a directory with
// one authority. The file is as safe as the directory: whoever can write it says who is the
// operator.
const AuthoritiesFile = "authorities.crt"

const speaksFor = "Speaks-For"

// ErrNotItsOwn is returned when a certificate says what the authority that signed it does not speak
// for.
var ErrNotItsOwn = errors.New("the authority that signed the certificate does not speak for that")

// Authority is a certificate that signs others, and what it speaks for.
type Authority struct {
	PEM []byte // one certificate
	For []*url.URL
}

// Pool is the URI of the servers of a memory pool, whose host names are below domain.
func Pool(domain string) *url.URL { return &url.URL{Scheme: Scheme, Host: "pool", Path: "/" + domain} }

// AppendAuthorities appends an AuthoritiesFile to dst: sorted, so that the same authorities always
// give the same file.
func AppendAuthorities(dst []byte, all ...Authority) ([]byte, error) {
	var blocks [][]byte
	for _, a := range all {
		block, _ := pem.Decode(a.PEM)
		if block == nil {
			return nil, errors.New("authority has no certificate in PEM form")
		}
		var names []string
		for _, u := range a.For {
			names = append(names, u.String())
		}
		slices.Sort(names)
		blocks = append(blocks, pem.EncodeToMemory(&pem.Block{
			Type: block.Type, Headers: map[string]string{speaksFor: strings.Join(names, " ")}, Bytes: block.Bytes,
		}))
	}
	slices.SortFunc(blocks, bytes.Compare)
	return append(dst, bytes.Join(slices.CompactFunc(blocks, bytes.Equal), nil)...), nil
}

// authorities are the content of an AuthoritiesFile.
type authorities struct {
	roots *x509.CertPool
	voice map[string]*voice // by the certificate in DER form
}

// voice is what one authority speaks for.
type voice struct {
	operator bool
	indexes  []string
	domains  []string
}

// parseAuthorities reads an AuthoritiesFile. A block that is not understood spoils the file: what
// it takes away may be a right.
func parseAuthorities(data []byte) (*authorities, error) {
	a := &authorities{x509.NewCertPool(), map[string]*voice{}}
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		names := block.Headers[speaksFor]
		if block.Type != "CERTIFICATE" || len(block.Headers) != 1 || names == "" {
			return nil, fmt.Errorf("%s: each block must be a certificate with the header %s and no other", AuthoritiesFile, speaksFor)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", AuthoritiesFile, err)
		}
		v := a.voice[string(cert.Raw)]
		if v == nil {
			v = &voice{}
			a.voice[string(cert.Raw)] = v
			a.roots.AddCert(cert)
		}
		for _, name := range strings.Fields(names) {
			if err := v.add(name); err != nil {
				return nil, fmt.Errorf("%s: %w", AuthoritiesFile, err)
			}
		}
	}
	if len(a.voice) == 0 {
		return nil, errors.New(AuthoritiesFile + " holds no certificate in PEM form")
	}
	return a, nil
}

// add lets an authority speak for what name says.
func (v *voice) add(name string) error {
	u, err := url.Parse(name)
	if err != nil {
		return err
	}
	if domain := strings.TrimPrefix(u.Path, "/"); domain != "" && Pool(domain).String() == name {
		v.domains = append(v.domains, domain)
		return nil
	}
	switch id, err := Parse(u); {
	case err != nil:
		return err
	case id.Role == RoleOperator:
		v.operator = true
	case id.Role == RoleClient:
		v.indexes = append(v.indexes, id.Index)
	default:
		return fmt.Errorf("no authority speaks for %q; %s://operator, %s://index/<object> and %s://pool/<domain> are possible", name, Scheme, Scheme, Scheme)
	}
	return nil
}

// client reports whether an authority speaks for id.
func (v *voice) client(id Identity) bool {
	switch id.Role {
	case RoleOperator, RoleMemory:
		return v.operator
	case RoleClient, RoleCompute:
		return slices.ContainsFunc(v.indexes, func(object string) bool {
			return id.Index == object || strings.HasPrefix(id.Index, object+"/")
		})
	}
	return false
}

// memoryServer reports whether an authority speaks for a memory server of this host name.
func (v *voice) memoryServer(host string) bool {
	return slices.ContainsFunc(v.domains, func(domain string) bool {
		name, below := strings.CutSuffix(host, "."+domain)
		return below && name != ""
	})
}

// computeServer reports whether an authority speaks for compute servers.
func (v *voice) computeServer(string) bool { return len(v.indexes) > 0 }

// fingerprints are the SHA-256 digests of all certificates, sorted.
func (a *authorities) fingerprints() (all [][]byte) {
	for der := range a.voice {
		digest := sha256.Sum256([]byte(der))
		all = append(all, digest[:])
	}
	slices.SortFunc(all, bytes.Compare)
	return all
}

// spoken reports whether one of the verified chains of a connection ends at an authority that fits.
func (a *authorities) spoken(s tls.ConnectionState, fits func(*voice) bool) bool {
	return slices.ContainsFunc(s.VerifiedChains, func(chain []*x509.Certificate) bool {
		v := a.voice[string(chain[len(chain)-1].Raw)]
		return v != nil && fits(v)
	})
}

// checkClient reports whether a client may be what its certificate says.
func (m *material) checkClient(s tls.ConnectionState) error {
	id, err := FromCertificate(s.PeerCertificates[0])
	if err != nil || m.authorities == nil {
		return err
	}
	if !m.authorities.spoken(s, func(v *voice) bool { return v.client(id) }) {
		return fmt.Errorf("%w: %v", ErrNotItsOwn, id)
	}
	return nil
}

// checkServer reports whether a server may be who was dialled.
func (m *material) checkServer(s tls.ConnectionState, host string, kind func(v *voice, host string) bool) error {
	if m.authorities != nil && !m.authorities.spoken(s, func(v *voice) bool { return kind(v, host) }) {
		return fmt.Errorf("%w: server %s", ErrNotItsOwn, host)
	}
	return nil
}
