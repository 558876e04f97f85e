package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
)

// Options of a connection to an index. Zero values mean the default, where one is named.
type Options struct {
	// Endpoints are where to ask for the partition map first: the index's service and its rpc port,
	// "my-index:7480", or single compute servers. At least one.
	Endpoints []string
	// User is who logs in. Default: the user default, which may do everything.
	User string
	// Password of the user. Servers without password ignore it. A user of whom every password is
	// right (nopass) needs none.
	Password string
	// PasswordFile has the password, if Password is empty. White space at its end is none of it. It
	// is read for each new stream and call, so a program goes on when the password is changed and
	// the file with it.
	PasswordFile string

	// CA is the PEM bundle that the servers' certificates are of. It, CAFile or Insecure must be
	// set.
	CA []byte
	// CAFile has such a bundle. It is read for each new connection, so a program goes on when the
	// index's authority is replaced and the file with it. While it cannot be read, CA counts.
	CAFile string
	// ServerName is what the certificates of Endpoints must name. Default: the host of each
	// endpoint. The certificates of servers found in the map must name the host that the map has
	// for them.
	ServerName string
	// Insecure goes without TLS, so the network sees the password and all data: for one machine and
	// tests. Nothing but the program sets it.
	Insecure bool

	// OnMadeAnew is called when the index lost its data and its owner decided to make it anew
	// (spec.recovery.onDataLoss: Recreate): it is empty then, or loaded from a backup. The client
	// goes on with it. Calls under way end with ErrDataLost, or ErrUnknown where a change may have
	// been made, and no scan has pairs of both. No call uses the new index before OnMadeAnew
	// returns; it must not call the client. Default: not called.
	OnMadeAnew func()

	// OnCall is told of each call that has ended, by the goroutine of that call, before it returns,
	// with the context of the call: for metrics and traces. It must not block, and may be called by
	// several goroutines at once. What a Tx reads is part of its transaction. Package client/otel
	// makes one for OpenTelemetry. Default: not called.
	OnCall func(ctx context.Context, call Call)

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
	trusts := len(o.CA) > 0 || o.CAFile != ""
	switch {
	case o.Insecure && trusts:
		return o, errors.New("connect to an index: set either CA or CAFile, or Insecure to go without TLS")
	case !o.Insecure && !trusts:
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
	var unread error
	if o.CAFile != "" {
		text, err := os.ReadFile(o.CAFile)
		switch {
		case err != nil:
			unread = fmt.Errorf("connect to an index: read CAFile: %w", err)
		case roots.AppendCertsFromPEM(text):
			return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots}, nil
		default:
			unread = fmt.Errorf("connect to an index: CAFile %s holds no certificate in PEM form", o.CAFile)
		}
	}
	switch {
	case roots.AppendCertsFromPEM(o.CA):
		return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots}, nil
	case unread != nil:
		return nil, unread
	}
	return nil, errors.New("connect to an index: CA holds no certificate in PEM form")
}

// dialCredentials make a TLS configuration for each handshake: CAFile may have changed.
type dialCredentials struct {
	credentials.TransportCredentials
	o          Options
	serverName string // empty = the host that is dialled
}

// newDialCredentials verify that a server is called serverName.
func newDialCredentials(o Options, serverName string) dialCredentials {
	return dialCredentials{credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, ServerName: serverName}), o, serverName}
}

// ClientHandshake implements credentials.TransportCredentials.
func (c dialCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := c.o.tlsConfig()
	if err != nil {
		return nil, nil, err
	}
	config.ServerName = c.serverName
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, raw)
}

// Clone implements credentials.TransportCredentials.
func (c dialCredentials) Clone() credentials.TransportCredentials {
	return newDialCredentials(c.o, c.serverName)
}

// The keys of a Secret <index>-conn, as its mount shows them as files.
const (
	SecretEndpoints = "endpoints" // "host:port" of rpc.Compute, separated by commas or white space
	SecretPassword  = "password"
	SecretUsername  = "username" // missing = the user default
	SecretCA        = "ca.crt"
)

// FromSecret reads Options from the directory where the Secret <index>-conn is mounted, or the
// Secret <name>-user of a DMUser, as whom the client logs in then. The password and ca.crt are read
// anew whenever they are needed, so a program goes on after a rotation. Without a ca.crt CA stays
// empty, and Connect refuses that unless the program sets Insecure.
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
	if o.User, err = read(SecretUsername); err != nil && !errors.Is(err, os.ErrNotExist) {
		return Options{}, err
	}
	ca, err := read(SecretCA)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return Options{}, err
	case ca != "":
		o.CA, o.CAFile = []byte(ca), filepath.Join(dir, SecretCA)
	}
	return o, nil
}
