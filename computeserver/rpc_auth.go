//env:real calls of a gRPC server

package computeserver

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dmindex/dmindex/pkg/identity"
)

// callers decides who may call: holders of a certificate of the operator or of this index, and
// programs that show the password.
type callers struct {
	index string
	auth  *passwords
	// without TLS there are no certificates, and who knows the password is the operator too
	tls bool
}

// identify says who calls.
func (a *callers) identify(ctx context.Context) (identity.Identity, error) {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
			id, err := identity.FromCertificate(info.State.PeerCertificates[0])
			if err == nil && id.MayUse(a.index) {
				return id, nil
			}
		}
	}
	if a.auth.Required() {
		given, ok := bearer(ctx)
		if !ok {
			return identity.Identity{}, status.Error(codes.Unauthenticated, "show the index's password, or a certificate of this index")
		}
		if !a.auth.Check([]byte(given)) {
			return identity.Identity{}, status.Error(codes.Unauthenticated, "the password is wrong; it is in the index's Secret")
		}
	}
	if !a.tls {
		return identity.Identity{Role: identity.RoleOperator}, nil
	}
	return identity.Identity{Role: identity.RoleClient, Index: a.index}, nil
}

func bearer(ctx context.Context) (string, bool) {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get("authorization")
	if len(values) != 1 {
		return "", false
	}
	return strings.CutPrefix(values[0], "Bearer ")
}

func (a *callers) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	id, err := a.identify(ctx)
	if err != nil {
		return nil, err
	}
	return next(identity.NewContext(ctx, id), req)
}

func (a *callers) stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if _, err := a.identify(stream.Context()); err != nil {
		return err
	}
	return next(srv, stream)
}

// rpcCredentials are the server's TLS configuration of pkg/identity. Programs need no certificate
// of their own.
func rpcCredentials(files *identity.Files) credentials.TransportCredentials {
	return credentials.NewTLS(files.OptionalServerConfig("h2"))
}
