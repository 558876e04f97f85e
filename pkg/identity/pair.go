package identity

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// Pair is a certificate and its key in a directory, as a mounted Secret of type kubernetes.io/tls
// has them, whose content may change at any time. Every handshake looks at the files' times and
// sizes. Files that cannot be read or do not fit together leave the former ones in force. Safe for
// concurrent use.
type Pair struct {
	dir string

	mu      sync.Mutex
	stamp   [2]stamp
	current *tls.Certificate
}

// OpenPair reads a directory for the first time; CertFile and KeyFile must be good.
func OpenPair(dir string) (*Pair, error) {
	p := &Pair{dir: dir}
	if _, err := p.load(); err != nil {
		return nil, fmt.Errorf("certificate directory %s: %w; it must hold %s and %s", dir, err, CertFile, KeyFile)
	}
	return p, nil
}

// ServerConfig is a TLS configuration for clients that show no certificate. It follows the files.
func (p *Pair) ServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, // as Redis; many of its clients know no other
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return p.load()
		},
	}
}

// load reads the files if they changed since the last good reading, and returns what is in force,
// or why nothing is.
func (p *Pair) load() (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var now [2]stamp
	for i, name := range []string{CertFile, KeyFile} {
		info, err := os.Stat(filepath.Join(p.dir, name))
		if err != nil {
			return p.fallback(err)
		}
		now[i] = stamp{info.ModTime(), info.Size()}
	}
	if p.current != nil && now == p.stamp {
		return p.current, nil
	}
	cert, err := tls.LoadX509KeyPair(filepath.Join(p.dir, CertFile), filepath.Join(p.dir, KeyFile))
	if err != nil {
		return p.fallback(err)
	}
	p.current, p.stamp = &cert, now
	return p.current, nil
}

// fallback is what is in force although the files cannot be read.
func (p *Pair) fallback(err error) (*tls.Certificate, error) {
	if p.current != nil {
		return p.current, nil
	}
	return nil, err
}
