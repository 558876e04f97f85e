package admission

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/identity"
)

// maxAge is after how long, give or take a tenth, a control connection is replaced.
const maxAge = time.Hour

// Hooks are what a server does around its calls, besides what this package does.
type Hooks struct {
	Count         grpc.UnaryServerInterceptor // around all that follows
	Recover       grpc.UnaryServerInterceptor // within the charges of a call
	RecoverStream grpc.StreamServerInterceptor
	// After the call was authorized; their errors are made statuses, as those of handlers.
	Handle []grpc.UnaryServerInterceptor
}

// Options are those of the control port's gRPC server. Connections are replaced after age, so that
// a certificate that ended or whose CA is not trusted any more does not live on in an old
// connection; 0 = maxAge. Calls that go on then have grace to end.
func (c *Callers) Options(age, grace time.Duration, h Hooks) []grpc.ServerOption {
	if age == 0 {
		age = maxAge
	}
	unary := append([]grpc.UnaryServerInterceptor{h.Count, charged, h.Recover, identity.UnaryServerInterceptor(c.everybody), authorized}, h.Handle...)
	return append(limits(age, grace), grpc.Creds(c),
		grpc.ChainUnaryInterceptor(append(unary, withStatus)...),
		grpc.ChainStreamInterceptor(chargedStream, h.RecoverStream, identity.StreamServerInterceptor(c.everybody), authorizedStream))
}

// limits bound what connections and calls take.
func limits(age, grace time.Duration) []grpc.ServerOption {
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
			MaxConnectionAgeGrace: grace,
			Time:                  30 * time.Second,
			Timeout:               10 * time.Second,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
}
