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
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/identity"
)

// maxAge is after how long, give or take a tenth, a control connection is replaced.
const maxAge = time.Hour

// limits of the gRPC server. Connections are replaced after age, so that a certificate that ended
// or whose CA is not trusted any more does not live on in an old connection.
func limits(age time.Duration) []grpc.ServerOption {
	return []grpc.ServerOption{
		// The largest request is a map. One that is too large by little gets a better message than
		// gRPC's.
		grpc.MaxRecvMsgSize(ledger.MaxMap + 64<<10),
		grpc.MaxSendMsgSize(maxOwed),
		grpc.MaxConcurrentStreams(128),
		// A stream's window grows to what its request announces, and not by what the connection
		// carries.
		grpc.StaticStreamWindowSize(64 << 10),
		grpc.StaticConnWindowSize(1 << 20),
		// There may be many connections, most of them idle.
		grpc.ReadBufferSize(4 << 10),
		grpc.ForceServerCodecV2(newControlCodec()),
		// The headers that a call keeps take several times as much: a field takes some 130 bytes
		// besides its own, of which 32 count here. Callers of this project send some 500 bytes.
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.ConnectionTimeout(10 * time.Second), // of the handshake
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle:     15 * time.Minute,
			MaxConnectionAge:      age,
			MaxConnectionAgeGrace: 2 * maxMapWait,
			Time:                  30 * time.Second,
			Timeout:               10 * time.Second,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
}

// everybody is who calls a server without TLS.
var everybody = identity.Identity{Role: identity.RoleOperator}

// newGRPC is the gRPC server with its services.
func newGRPC(c *service, v *volume, m *metrics, callers *callers, age time.Duration) (*grpc.Server, *health.Server) {
	options := append(limits(age), grpc.Creds(callers),
		grpc.ChainUnaryInterceptor(m.count, charged, c.recovered, identity.UnaryServerInterceptor(callers.everybody), authorized, c.primary, c.mirrored, withStatus),
		grpc.ChainStreamInterceptor(chargedStream, c.recoveredStream, identity.StreamServerInterceptor(callers.everybody), authorizedStream))
	server, healthy := grpc.NewServer(options...), health.NewServer()
	rpcv1.RegisterMemoryServer(server, c)
	rpcv1.RegisterVolumeServer(server, v)
	healthv1.RegisterHealthServer(server, healthy)
	healthy.SetServingStatus(rpcv1.Memory_ServiceDesc.ServiceName, healthv1.HealthCheckResponse_SERVING)
	return server, healthy
}

// withStatus turns the errors of handlers into statuses.
func withStatus(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	reply, err := next(ctx, request)
	return reply, statusOf(err)
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
