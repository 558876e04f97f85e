//env:real calls of a gRPC server

package computeserver

import (
	"bytes"
	"context"
	"encoding/base64"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/users"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/keyrange"
)

// callers decides who may call: holders of a certificate of the operator or of this index, and
// programs that show the password.
type callers struct {
	index string
	users *users.Directory
	// nil without TLS: there are no certificates, and who knows the password is the operator too
	files *identity.Files
}

// caller is who calls: the holder of a certificate, or a user.
type caller struct {
	id identity.Identity
	// login is nobody's for the holder of a certificate. It belongs to the goroutine of the call.
	login users.Login
	// of the connection; nil if the caller has shown none
	certificate *certificate
}

// user is whose rights count, or nil for the holder of a certificate, which may read and write all.
func (c *caller) user() *users.User { return c.login.User() }

// isServer reports whether the caller may be another server, and is no program.
func (c *caller) isServer() bool {
	return c.id.Role != identity.RoleClient
}

// renew reports whether the caller may go on: a user whose password is not right any more may not,
// nor the holder of a certificate that has ended or is not trusted any more.
func (c *caller) renew() bool {
	if c.user() == nil {
		return c.certificate.refused() == nil
	}
	return c.login.Renew()
}

// mayScan is nil if the caller may read all of a range now. Errors: errCredentialGone,
// codes.PermissionDenied.
func (c *caller) mayScan(req *rpcv1.ScanRequest) error {
	if c.user() == nil {
		return nil // its certificate was looked at when it asked
	}
	if !c.renew() {
		return errCredentialGone
	}
	if u := c.user(); !u.MayReadRange(req.Start, req.End) {
		return status.Errorf(codes.PermissionDenied, "the user %s may not read every key %s; ask for a range within the user's prefixes",
			u.Name(), keyrange.Format(req.Start, req.End))
	}
	return nil
}

type callerKey struct{}

// callerOf is who calls, as the gate found.
func callerOf(ctx context.Context) *caller { return ctx.Value(callerKey{}).(*caller) }

// newContext is a context that says who calls.
func (c *caller) newContext(ctx context.Context) context.Context {
	return context.WithValue(identity.NewContext(ctx, c.id), callerKey{}, c)
}

// certified is the caller of a connection's certificate, or nil if that may not use the index.
func (a *callers) certified(info credentials.AuthInfo) *caller {
	t, ok := info.(credentials.TLSInfo)
	if !ok || len(t.State.VerifiedChains) == 0 {
		return nil
	}
	id, err := identity.FromCertificate(t.State.PeerCertificates[0])
	if err != nil || !id.MayUse(a.index) {
		return nil
	}
	return &caller{id: id}
}

// program is the caller of a call without such a certificate, by its header authorization.
func (a *callers) program(authorization []string) (*caller, error) {
	login, ok := a.users.Anyone()
	if !ok {
		name, password, ok := credentialsOf(authorization)
		if !ok {
			return nil, status.Error(codes.Unauthenticated, "show the index's password or that of a user, or a certificate of this index")
		}
		if login, ok = a.users.Login(name, password); !ok {
			return nil, status.Error(codes.Unauthenticated, "the password is wrong, or there is no such user; that of the user default is in the index's Secret")
		}
	}
	c := &caller{id: identity.Identity{Role: identity.RoleClient, Index: a.index}, login: login}
	if a.files == nil && login.User().Name() == users.DefaultName {
		c.id = identity.Identity{Role: identity.RoleOperator}
	}
	return c, nil
}

// credentialsOf are the name and the password that a call shows: "Basic" with both (RFC 7617), or
// "Bearer" with the password of the user default.
func credentialsOf(values []string) (name string, password []byte, ok bool) {
	if len(values) != 1 {
		return "", nil, false
	}
	if text, ok := strings.CutPrefix(values[0], "Bearer "); ok {
		return users.DefaultName, []byte(text), true
	}
	text, ok := strings.CutPrefix(values[0], "Basic ")
	if !ok {
		return "", nil, false
	}
	both, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return "", nil, false
	}
	before, password, ok := bytes.Cut(both, []byte(":"))
	return string(before), password, ok
}

// rpcCredentials are the server's TLS configuration of pkg/identity. Programs need no certificate
// of their own.
func rpcCredentials(files *identity.Files) credentials.TransportCredentials {
	return credentials.NewTLS(files.OptionalServerConfig("h2"))
}
