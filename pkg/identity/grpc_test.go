package identity_test

import (
	"context"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
)

// TestGRPC calls a server over TLS: handlers of calls and streams learn who calls.
func TestGRPC(t *testing.T) {
	ca := identitytest.NewCA(t, "ca")
	server := open(t, ca.Dir(identitytest.Options{}))
	var saw atomic.Value
	s := grpc.NewServer(grpc.Creds(server.ServerCredentials()),
		grpc.ChainUnaryInterceptor(identity.UnaryServerInterceptor(nil), func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			saw.Store(identity.FromContext(ctx))
			return next(ctx, r)
		}),
		grpc.ChainStreamInterceptor(identity.StreamServerInterceptor(nil), func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			saw.Store(identity.FromContext(stream.Context()))
			return next(srv, stream)
		}))
	healthv1.RegisterHealthServer(s, health.NewServer())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	defer s.Stop()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dial := func(f *identity.Files, name string) healthv1.HealthClient {
		t.Helper()
		conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(f.ClientCredentials(name)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return healthv1.NewHealthClient(conn)
	}
	client := open(t, ca.Dir(identitytest.Options{URIs: []*url.URL{identity.Compute("a/2")}}))
	want := identity.Identity{Role: identity.RoleCompute, Index: "a/2"}
	c := dial(client, "")
	if _, err := c.Check(ctx, &healthv1.HealthCheckRequest{}); err != nil || saw.Load() != want {
		t.Errorf("a call: %v, by %v", err, saw.Load())
	}
	saw.Store(identity.Identity{})
	stream, err := c.Watch(ctx, &healthv1.HealthCheckRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil || saw.Load() != want {
		t.Errorf("a stream: %v, by %v", err, saw.Load())
	}
	if _, err := dial(client, "localhost").Check(ctx, &healthv1.HealthCheckRequest{}); err != nil {
		t.Errorf("with a name: %v", err)
	}
	if _, err := dial(client, "elsewhere").Check(ctx, &healthv1.HealthCheckRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("with another name: %v", err)
	}
}

// TestInterceptor: nobody gets in without a certificate, unless everybody is somebody.
func TestInterceptor(t *testing.T) {
	handler := func(ctx context.Context, _ any) (any, error) { return identity.FromContext(ctx), nil }
	if _, err := identity.UnaryServerInterceptor(nil)(t.Context(), nil, nil, handler); status.Code(err) != codes.Unauthenticated {
		t.Error(err)
	}
	everybody := identity.Identity{Role: identity.RoleOperator}
	if id, err := identity.UnaryServerInterceptor(&everybody)(t.Context(), nil, nil, handler); err != nil || id != everybody {
		t.Errorf("%v, %v", id, err)
	}
	if id := identity.FromContext(t.Context()); id != (identity.Identity{}) || id.URI() != nil {
		t.Error(id)
	}
}
