//env:real calls of a gRPC server

package computeserver

import (
	"bytes"
	"context"
	"encoding/base64"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dmindex/dmindex/computeserver/users"
	"github.com/dmindex/dmindex/pkg/identity"
)

// callers decides who may call: holders of a certificate of the operator or of this index, and
// programs that show the password.
type callers struct {
	index string
	users *users.Directory
	// without TLS there are no certificates, and who knows the password is the operator too
	tls bool
}

// caller is who calls: the holder of a certificate, or a user.
type caller struct {
	id identity.Identity
	// login is nobody's for the holder of a certificate. It belongs to the goroutine of the call.
	login users.Login
}

// user is whose rights count, or nil for the holder of a certificate, which may read and write all.
func (c *caller) user() *users.User { return c.login.User() }

// renew reports whether the caller may go on: a user whose password is not right any more may not.
func (c *caller) renew() bool { return c.user() == nil || c.login.Renew() }

type callerKey struct{}

// callerOf is who calls, as identify found.
func callerOf(ctx context.Context) *caller { return ctx.Value(callerKey{}).(*caller) }

// identify finds who calls and returns a context with it.
func (a *callers) identify(ctx context.Context) (context.Context, error) {
	c, err := a.find(ctx)
	if err != nil {
		return nil, err
	}
	return context.WithValue(identity.NewContext(ctx, c.id), callerKey{}, c), nil
}

func (a *callers) find(ctx context.Context) (*caller, error) {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
			id, err := identity.FromCertificate(info.State.PeerCertificates[0])
			if err == nil && id.MayUse(a.index) {
				return &caller{id: id}, nil
			}
		}
	}
	login, ok := a.users.Anyone()
	if !ok {
		name, password, ok := credentialsOf(ctx)
		if !ok {
			return nil, status.Error(codes.Unauthenticated, "show the index's password or that of a user, or a certificate of this index")
		}
		if login, ok = a.users.Login(name, password); !ok {
			return nil, status.Error(codes.Unauthenticated, "the password is wrong, or there is no such user; that of the user default is in the index's Secret")
		}
	}
	c := &caller{id: identity.Identity{Role: identity.RoleClient, Index: a.index}, login: login}
	if !a.tls && login.User().Name() == users.DefaultName {
		c.id = identity.Identity{Role: identity.RoleOperator}
	}
	return c, nil
}

// credentialsOf are the name and the password that a call shows: "Basic" with both (RFC 7617), or
// "Bearer" with the password of the user default.
func credentialsOf(ctx context.Context) (name string, password []byte, ok bool) {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get("authorization")
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

func (a *callers) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	ctx, err := a.identify(ctx)
	if err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (a *callers) stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx, err := a.identify(stream.Context())
	if err != nil {
		return err
	}
	return next(srv, &calledStream{stream, ctx})
}

// calledStream is a stream whose context says who calls.
type calledStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *calledStream) Context() context.Context { return s.ctx }

// rpcCredentials are the server's TLS configuration of pkg/identity. Programs need no certificate
// of their own.
func rpcCredentials(files *identity.Files) credentials.TransportCredentials {
	return credentials.NewTLS(files.OptionalServerConfig("h2"))
}
