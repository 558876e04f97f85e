package identity

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// ServerCredentials are ServerConfig for a gRPC server.
func (f *Files) ServerCredentials() credentials.TransportCredentials {
	return credentials.NewTLS(f.ServerConfig("h2"))
}

// ClientCredentials dial the gRPC of memory servers: every handshake uses the files as they are
// then. serverName is what the server's certificate must name; empty = the host that is dialled.
func (f *Files) ClientCredentials(serverName string) credentials.TransportCredentials {
	return f.clientCredentials(serverName, (*voice).memoryServer)
}

// PeerCredentials are ClientCredentials that dial other compute servers of the same index.
func (f *Files) PeerCredentials() credentials.TransportCredentials {
	return f.clientCredentials("", (*voice).computeServer)
}

func (f *Files) clientCredentials(serverName string, kind func(v *voice, host string) bool) credentials.TransportCredentials {
	base := credentials.NewTLS(f.clientConfig(serverName, kind, nil))
	return &clientCredentials{TransportCredentials: base, files: f, serverName: serverName, kind: kind}
}

// clientCredentials makes a TLS configuration for each handshake; all else is as its embedded
// credentials say.
type clientCredentials struct {
	credentials.TransportCredentials
	files      *Files
	serverName string
	kind       func(v *voice, host string) bool
}

func (c *clientCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	host := c.serverName
	if host == "" {
		host = authority
		if name, _, err := net.SplitHostPort(authority); err == nil {
			host = name
		}
	}
	return credentials.NewTLS(c.files.clientConfig(host, c.kind, nil)).ClientHandshake(ctx, authority, raw)
}

func (c *clientCredentials) Clone() credentials.TransportCredentials {
	clone := *c
	clone.TransportCredentials = c.TransportCredentials.Clone()
	return &clone
}

type contextKey struct{}

// NewContext is ctx with an identity.
func NewContext(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, id)
}

// FromContext is the identity that an interceptor of this package put into ctx; nobody if there was
// none.
func FromContext(ctx context.Context) Identity {
	id, _ := ctx.Value(contextKey{}).(Identity)
	return id
}

// FromAuthInfo reads the identity of a connection's verified certificate. Credentials that add to
// what the handshake found have an Unwrap.
func FromAuthInfo(info credentials.AuthInfo) (Identity, error) {
	if w, ok := info.(interface{ Unwrap() credentials.AuthInfo }); ok {
		info = w.Unwrap()
	}
	if t, ok := info.(credentials.TLSInfo); ok && len(t.State.VerifiedChains) > 0 {
		return FromCertificate(t.State.PeerCertificates[0])
	}
	return Identity{}, ErrNone
}

// fromPeer reads the identity of a call's verified certificate.
func fromPeer(ctx context.Context) (Identity, error) {
	if p, ok := peer.FromContext(ctx); ok {
		return FromAuthInfo(p.AuthInfo)
	}
	return Identity{}, ErrNone
}

// with puts the caller's identity into ctx: everybody, where everybody is given, else what the
// certificate says.
func with(ctx context.Context, everybody *Identity) (context.Context, error) {
	if everybody != nil {
		return NewContext(ctx, *everybody), nil
	}
	id, err := fromPeer(ctx)
	if err != nil {
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	return NewContext(ctx, id), nil
}

// UnaryServerInterceptor puts the identity of the caller's certificate into the context of each
// call and refuses calls without one. If everybody is not nil, no certificate is asked for and
// every caller is that: for servers without TLS.
func UnaryServerInterceptor(everybody *Identity) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		ctx, err := with(ctx, everybody)
		if err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

// StreamServerInterceptor is UnaryServerInterceptor for streams.
func StreamServerInterceptor(everybody *Identity) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		ctx, err := with(stream.Context(), everybody)
		if err != nil {
			return err
		}
		return next(srv, &identifiedStream{stream, ctx})
	}
}

// identifiedStream is a stream whose context has an identity.
type identifiedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *identifiedStream) Context() context.Context { return s.ctx }
