//env:real gRPC runs each call on a goroutine of its own

package memserver

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/internal/admission"
)

// newGRPC is the gRPC server with its services.
func newGRPC(c *service, v *volume, m *metrics, callers *admission.Callers, age time.Duration) (*grpc.Server, *health.Server) {
	options := callers.Options(age, 2*maxMapWait, admission.Hooks{
		Count: m.count, Recover: c.recovered, RecoverStream: c.recoveredStream, Handle: []grpc.UnaryServerInterceptor{c.primary, c.mirrored},
	})
	server, healthy := grpc.NewServer(options...), health.NewServer()
	rpcv1.RegisterMemoryServer(server, c)
	rpcv1.RegisterVolumeServer(server, v)
	healthv1.RegisterHealthServer(server, healthy)
	healthy.SetServingStatus(rpcv1.Memory_ServiceDesc.ServiceName, healthv1.HealthCheckResponse_SERVING)
	return server, healthy
}

// recovered turns a panic of a handler into an Internal error and a line in the log.
func (c *service) recovered(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (reply any, err error) {
	defer c.recover(info.FullMethod, &err)
	return next(ctx, request)
}

// recoveredStream is recovered for streams, which the end of the server ends as well: those who
// watch its health never would.
func (c *service) recoveredStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer c.recover(info.FullMethod, &err)
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(c.stopping, cancel)()
	return next(srv, endingStream{stream, ctx})
}

// endingStream is a stream with a context that ends earlier.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s endingStream) Context() context.Context { return s.ctx }

func (c *service) recover(method string, err *error) {
	if p := recover(); p != nil {
		c.log.Error("a control call panicked: this is a fault of the program, please report it", "method", method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		*err = status.Errorf(codes.Internal, "%s failed by a fault of the memory server; its log says more", method)
	}
}
