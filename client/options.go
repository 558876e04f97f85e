package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Options of a connection to an index. Zero values mean the default, where one is named.
type Options struct {
	// Endpoints are where to ask for the partition map first: the index's service and its rpc port,
	// "my-index:7480", or single compute servers. At least one.
	Endpoints []string
	// User is who logs in. Default: the user default, which may do everything.
	User string
	// Password of the user. Servers without password ignore it.
	Password string
	// PasswordFile has the password, if Password is empty. It is read for each new stream and call,
	// so a program goes on when the password is changed and the file with it.
	PasswordFile string

	// CA is the PEM bundle that the servers' certificates are of. Either it or Insecure must be
	// set.
	CA []byte
	// ServerName is what the certificates of Endpoints must name. Default: the host of each
	// endpoint. The certificates of servers found in the map must name the host that the map has
	// for them.
	ServerName string
	// Insecure goes without TLS, so the network sees the password and all data: for one machine and
	// tests. Nothing but the program sets it.
	Insecure bool

	// Limit bounds a call whose context has no deadline. Default 10 s.
	Limit time.Duration
	// Attempt bounds one try of an operation at a server; what is safe to repeat is tried again
	// after it. Default 3 s.
	Attempt time.Duration
}

func (o Options) withDefaults() (Options, error) {
	if len(o.Endpoints) == 0 {
		return o, errors.New("connect to an index: Endpoints is empty; name the index's service, for example my-index:7480")
	}
	switch {
	case o.Insecure && len(o.CA) > 0:
		return o, errors.New("connect to an index: set either CA, or Insecure to go without TLS")
	case !o.Insecure && len(o.CA) == 0:
		return o, errors.New("connect to an index: CA is empty: set it to what ca.crt of the index's Secret has, " +
			"or set Insecure to show the password and all data to the network")
	}
	o.Endpoints = slices.Clone(o.Endpoints) // the caller's
	if o.Limit == 0 {
		o.Limit = 10 * time.Second
	}
	if o.Attempt == 0 {
		o.Attempt = 3 * time.Second
	}
	if o.Limit < 0 || o.Attempt < 0 {
		return o, errors.New("connect to an index: Limit or Attempt is negative")
	}
	return o, nil
}

// tlsConfig verifies servers by the CA bundle only.
func (o *Options) tlsConfig() (*tls.Config, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(o.CA) {
		return nil, errors.New("connect to an index: CA holds no certificate in PEM form")
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots}, nil
}

// The keys of a Secret <index>-conn, as its mount shows them as files.
const (
	SecretEndpoints = "endpoints" // "host:port" of rpc.Compute, separated by commas or white space
	SecretPassword  = "password"
	SecretCA        = "ca.crt"
)

// FromSecret reads Options from the directory where the Secret <index>-conn is mounted. The
// password is read anew whenever it is needed, so a program goes on after a rotation. Without a
// ca.crt CA stays empty, and Connect refuses that unless the program sets Insecure.
func FromSecret(dir string) (Options, error) {
	read := func(name string) (string, error) {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", fmt.Errorf("read the index's Secret: %w", err)
		}
		return strings.TrimSpace(string(data)), nil
	}
	endpoints, err := read(SecretEndpoints)
	if err != nil {
		return Options{}, err
	}
	o := Options{Endpoints: strings.FieldsFunc(endpoints, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' })}
	if len(o.Endpoints) == 0 {
		return Options{}, fmt.Errorf("read the index's Secret: %s names no endpoint", filepath.Join(dir, SecretEndpoints))
	}
	if _, err = read(SecretPassword); err != nil {
		return Options{}, err
	}
	o.PasswordFile = filepath.Join(dir, SecretPassword)
	ca, err := read(SecretCA)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return Options{}, err
	default:
		o.CA = []byte(ca)
	}
	return o, nil
}
