//env:real handshakes of crypto/tls run on their own goroutines

package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// The files of a TLS directory, as a mounted Secret of type kubernetes.io/tls has them.
const (
	CertFile = "tls.crt" // PEM: own certificate, then intermediates
	KeyFile  = "tls.key" // PEM: its private key
	// PEM: whose certificates are trusted, for whatever they say; see AuthoritiesFile
	CAFile = "ca.crt"
)

// Files is a TLS directory whose content may change at any time. Every handshake looks at the
// files' times and sizes and reads them again if they changed. Files that cannot be read or do not
// fit together (a Secret in the middle of its update) leave the former ones in force; Err then says
// what is wrong. Safe for concurrent use.
type Files struct {
	dir string

	mu      sync.Mutex
	stamp   [5]stamp
	current *material
	err     error
}

// material is one consistent content of the directory.
type material struct {
	cert        tls.Certificate
	roots       *x509.CertPool
	authorities *authorities // nil = all of roots speak for everybody
	fabricTLS   voice        // its indexes are those of FabricFile
}

// stamp tells one content of a file from another without reading it.
type stamp struct {
	changed time.Time
	size    int64
}

// Open reads a TLS directory for the first time; all of its files must be good.
func Open(dir string) (*Files, error) {
	f := &Files{dir: dir}
	f.load()
	if f.current == nil {
		return nil, fmt.Errorf("TLS directory %s: %w; it must hold %s, %s and %s", dir, f.err, CertFile, KeyFile, CAFile)
	}
	return f, nil
}

// Err is why the newest content of the directory is not in use; nil when it is.
func (f *Files) Err() error {
	f.load()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// load reads the files if they changed since the last good reading, and returns what is in force.
func (f *Files) load() *material {
	f.mu.Lock()
	defer f.mu.Unlock()
	var now [5]stamp
	for i, name := range []string{CertFile, KeyFile, CAFile, AuthoritiesFile, FabricFile} {
		info, err := os.Stat(filepath.Join(f.dir, name))
		if (name == AuthoritiesFile || name == FabricFile) && errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			f.err = err
			return f.current
		}
		now[i] = stamp{info.ModTime(), info.Size()}
	}
	if f.current != nil && now == f.stamp {
		f.err = nil
		return f.current
	}
	m, err := read(f.dir)
	if err != nil {
		f.err = err
		return f.current
	}
	f.current, f.stamp, f.err = m, now, nil
	return m
}

func read(dir string) (*material, error) {
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, CertFile), filepath.Join(dir, KeyFile))
	if err != nil {
		return nil, err
	}
	fabric, err := readFabric(dir)
	if err != nil {
		return nil, err
	}
	spoken, err := os.ReadFile(filepath.Join(dir, AuthoritiesFile))
	if err == nil {
		a, err := parseAuthorities(spoken)
		if err != nil {
			return nil, err
		}
		return &material{cert, a.roots, a, fabric}, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	bundle, err := os.ReadFile(filepath.Join(dir, CAFile))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return nil, errors.New(CAFile + " holds no certificate in PEM form")
	}
	return &material{cert, roots, nil, fabric}, nil
}

// ServerConfig asks every client for a certificate with an identity of this package that its
// authority speaks for, under TLS 1.3. The returned configuration follows the files.
func (f *Files) ServerConfig(protocols ...string) *tls.Config {
	return f.serverConfig(tls.RequireAndVerifyClientCert, nil, protocols)
}

// PeerConfig is ServerConfig for clients that are what the own certificate says too: memory servers
// of the same pool.
func (f *Files) PeerConfig(protocols ...string) *tls.Config {
	peers := func(m *material, s tls.ConnectionState) error {
		own, err := FromCertificate(m.cert.Leaf)
		if err != nil {
			return fmt.Errorf("the own certificate: %w", err)
		}
		if who, err := FromCertificate(s.PeerCertificates[0]); err != nil || who != own {
			return fmt.Errorf("%w: the client is %v, and this is %v", ErrNotItsOwn, who, own)
		}
		return nil
	}
	return f.serverConfig(tls.RequireAndVerifyClientCert, peers, protocols)
}

// OptionalServerConfig is ServerConfig, but a client may have no certificate.
func (f *Files) OptionalServerConfig(protocols ...string) *tls.Config {
	return f.serverConfig(tls.VerifyClientCertIfGiven, nil, protocols)
}

// serverConfig asks fits, if it is not nil, for what a client is besides.
func (f *Files) serverConfig(auth tls.ClientAuthType, fits func(*material, tls.ConnectionState) error, protocols []string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			m := f.load()
			return &tls.Config{
				MinVersion:   tls.VersionTLS13,
				NextProtos:   protocols,
				Certificates: []tls.Certificate{m.cert},
				ClientAuth:   auth,
				ClientCAs:    m.roots,
				// A resumed session would outlive a change of the authorities.
				SessionTicketsDisabled: true,
				VerifyConnection: func(s tls.ConnectionState) error {
					if len(s.PeerCertificates) == 0 {
						return nil // only where auth allows that
					}
					if err := m.checkClient(s); err != nil || fits == nil {
						return err
					}
					return fits(m, s)
				},
			}, nil
		},
	}
}

// Readmit is why a client that ServerConfig let in would not be let in now; nil if it would be.
func (f *Files) Readmit(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return ErrNone
	}
	m := f.load()
	between := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	var err error
	s.VerifiedChains, err = s.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: m.roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return err
	}
	return m.checkClient(s)
}

// ClientConfig shows the own certificate and accepts a memory server whose certificate names
// serverName, by an authority that speaks for it, under TLS 1.3. It has the content of this moment:
// make one for each connection, or use ClientCredentials.
func (f *Files) ClientConfig(serverName string, protocols ...string) *tls.Config {
	return f.clientConfig(serverName, (*voice).memoryServer, protocols)
}

func (f *Files) clientConfig(serverName string, kind func(v *voice, host string) bool, protocols []string) *tls.Config {
	m := f.load()
	return &tls.Config{
		MinVersion:       tls.VersionTLS13,
		NextProtos:       protocols,
		ServerName:       serverName,
		Certificates:     []tls.Certificate{m.cert},
		RootCAs:          m.roots,
		VerifyConnection: func(s tls.ConnectionState) error { return m.checkServer(s, serverName, kind) },
	}
}

// Trust is what is in force: the SHA-256 digests of the authorities of AuthoritiesFile, sorted, and
// the key identifier of the authority that signed the own certificate. Without that file there are
// no digests.
func (f *Files) Trust() (authorities [][]byte, signer []byte) {
	m := f.load()
	if m.authorities != nil {
		authorities = m.authorities.fingerprints()
	}
	return authorities, m.cert.Leaf.AuthorityKeyId
}

// Identity is the URI of this package that the certificate in force says; empty if it says none.
func (f *Files) Identity() string {
	id, err := FromCertificate(f.load().cert.Leaf)
	if err != nil {
		return ""
	}
	return id.URI().String()
}

// NotAfter is when the certificate in force ends.
func (f *Files) NotAfter() time.Time { return f.load().cert.Leaf.NotAfter }
