//env:real reads a mounted file now and then

package computeserver

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// passwords checks the password of programs. It comes from a file that may change at any time; a
// former password is refused as soon as a new one was read. Safe for concurrent use.
type passwords struct {
	path string // empty: there is no password, everybody may do everything

	mu      sync.Mutex
	digest  [sha256.Size]byte
	stamp   stamp
	checked time.Time
}

type stamp struct {
	changed time.Time
	size    int64
}

// passwordLooksEvery is how often the file is looked at, at most.
const passwordLooksEvery = time.Second

// openPasswords reads the password for the first time.
func openPasswords(path string, allowNone bool) (*passwords, error) {
	if path == "" {
		if !allowNone {
			return nil, errors.New("compute server: there is no password file; name one, or allow access without password on purpose")
		}
		return &passwords{}, nil
	}
	p := &passwords{path: path}
	if err := p.read(); err != nil {
		return nil, err
	}
	return p, nil
}

// Required reports whether there is a password.
func (p *passwords) Required() bool { return p.path != "" }

// Check reports whether password is the right one, in a time that does not depend on it.
func (p *passwords) Check(password []byte) bool {
	if !p.Required() {
		return true
	}
	given := sha256.Sum256(password)
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.checked) >= passwordLooksEvery {
		p.checked = now
		_ = p.read() // the former password stays while the file cannot be read
	}
	return subtle.ConstantTimeCompare(given[:], p.digest[:]) == 1
}

// read reads the file if it changed. White space at its end is not part of the password. Called
// under mu, or before use.
func (p *passwords) read() error {
	info, err := os.Stat(p.path)
	if err != nil {
		return fmt.Errorf("read the password: %w", err)
	}
	now := stamp{info.ModTime(), info.Size()}
	if now == p.stamp {
		return nil
	}
	data, err := os.ReadFile(p.path)
	if err != nil {
		return fmt.Errorf("read the password: %w", err)
	}
	data = bytes.TrimRight(data, " \t\r\n")
	if len(data) == 0 {
		return fmt.Errorf("read the password: %s is empty", p.path)
	}
	p.digest, p.stamp = sha256.Sum256(data), now
	return nil
}

// secret is the password itself, for calls to other servers that have no certificate to show.
func (p *passwords) secret() string {
	if !p.Required() {
		return ""
	}
	data, err := os.ReadFile(p.path)
	if err != nil {
		return ""
	}
	return string(bytes.TrimRight(data, " \t\r\n"))
}
