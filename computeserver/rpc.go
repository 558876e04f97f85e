//env:real a gRPC server: streams are channels and goroutines

package computeserver

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/dmindex/dmindex/api/rpc/dostream"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/resp"
	"github.com/dmindex/dmindex/computeserver/users"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/keyrange"
)

// Bounds of rpc.Compute.
const (
	rpcMaxOperations = 1024    // of one batch
	rpcMaxMessage    = 8 << 20 // bytes of one message in either direction
	rpcWorkers       = 16      // batches of one stream that run at once
	// batches of one stream, and their bytes if it is more than one; what comes beyond is not read
	rpcUnanswered      = 256
	rpcUnansweredBytes = 32 << 20
	// lanes of one stream that are parked, and the bytes of their batches; what would wait beyond
	// is answered UNAVAILABLE
	rpcParked       = 1024
	rpcParkedBytes  = 8 << 20
	rpcParkedValues = 32 << 20               // bytes of values that wait with such batches
	rpcForwardsEnd  = 500 * time.Millisecond // that they wait for other servers after their stream
	rpcScanMessage  = 64 << 10
	rpcMaxStreams   = 1024     // of one connection
	rpcMaxRequest   = 64 << 10 // bytes of a request that is no batch
	// bytes of the headers of a call, and 32 for each: the password is one of them
	rpcMaxHeaders = 8 << 10
)

// rpcCodec is the codec of batches, but for requests that are larger than such requests are.
type rpcCodec struct{ encoding.CodecV2 }

func newRPCCodec() rpcCodec { return rpcCodec{dostream.Codec()} }

// Unmarshal implements encoding.CodecV2.
func (c rpcCodec) Unmarshal(data mem.BufferSlice, v any) error {
	_, batch := v.(*rpcv1.DoRequest)
	_, messages := v.(*rpcv1.PublishRequest)
	if !batch && !messages && data.Len() > rpcMaxRequest {
		return fmt.Errorf("a request of %d bytes; at most %d are possible but for batches", data.Len(), rpcMaxRequest)
	}
	return c.CodecV2.Unmarshal(data, v)
}

// rpcServer is the gRPC front end.
type rpcServer struct {
	rpcv1.UnimplementedComputeServer
	core     *engine.Engine
	metrics  *metrics
	resp     *resp.Server // which keeps the time of draining
	drain    func(limit time.Duration) (unfinished uint64)
	describe func() *rpcv1.DescribeComputeReply
	users    *users.Directory
	files    *identity.Files // nil = without TLS
	hider    func() keyrange.Hider

	mostParked int // rpcParked, but in tests
	arrivals   arrivals

	cut     chan struct{} // closed when requests are refused, since the server drains
	running atomic.Int64  // batches and scans
	pending atomic.Int64  // batches that are queued, or that have no answer
	latest  atomic.Int64  // when the last of them began
}

const (
	drainQuiet = 100 * time.Millisecond // without requests: nobody relies on this server any more
	drainLooks = 5 * time.Millisecond
)

// drainCalls ends all Do streams, after what they took is answered, and refuses what comes after:
// at once where any other server will do, else when nobody asks any more or most of limit is over,
// since maps may still send this server's keys here.
func (r *rpcServer) drainCalls(limit time.Duration) {
	e := r.core.Env
	deadline := e.Now() + limit
	for !r.core.View.Any && !r.resp.PastDrain() && e.Now() < deadline {
		if e.Now()-time.Duration(r.latest.Load()) > drainQuiet {
			break
		}
		e.Sleep(drainLooks)
	}
	close(r.cut)
	for r.running.Load() > 0 && e.Now() < deadline {
		e.Sleep(drainLooks)
	}
	r.core.CutShort()
}

// errDrained is how Do streams end: see rpc.Compute.
var errDrained = status.Error(codes.Aborted, "this server is shutting down and took no more of this stream; ask another one")

// isDraining reports whether requests are refused since the server drains.
func (r *rpcServer) isDraining() bool {
	select {
	case <-r.cut:
		return true
	default:
		return false
	}
}

// begin counts a request as running until the returned function is called. A request begins before
// it looks whether it is cut, and a drain cuts before it looks whether any runs: so it is waited
// for, or is refused.
func (r *rpcServer) begin() (end func()) {
	r.running.Add(1)
	r.latest.Store(int64(r.core.Env.Now()))
	return func() { r.running.Add(-1) }
}

// checkIndex returns an error if a request means another index than the server has; empty = any.
func (r *rpcServer) checkIndex(index string) error {
	if has := r.core.Index.Identity; index != "" && index != has {
		return status.Errorf(codes.FailedPrecondition, "this server has the index %s, not %s; ask for the map again", has, index)
	}
	return nil
}

// GetCursor says where a SCAN goes on.
func (r *rpcServer) GetCursor(ctx context.Context, req *rpcv1.GetCursorRequest) (*rpcv1.GetCursorReply, error) {
	if !seesAll(callerOf(ctx).user()) {
		return nil, status.Error(codes.PermissionDenied, "a cursor names a key: only users that may read every key may ask for it")
	}
	key, found := r.resp.Cursor(req.Cursor)
	return &rpcv1.GetCursorReply{Found: found, Key: key}, nil
}

// GetMap reads the map that this server acts on, as the caller may see it.
func (r *rpcServer) GetMap(ctx context.Context, _ *rpcv1.GetComputeMapRequest) (*rpcv1.ComputeMapReply, error) {
	reply := &rpcv1.ComputeMapReply{Any: r.core.View.Any}
	if m := r.core.View.Current(); m != nil {
		data, err := shownMap(callerOf(ctx).user(), m).Marshal(nil)
		if err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		reply.Generation, reply.Map = m.Generation, data
	}
	return reply, nil
}

// Describe says what this server is and how it fares, without keys to those that may not read all.
func (r *rpcServer) Describe(ctx context.Context, _ *rpcv1.DescribeComputeRequest) (*rpcv1.DescribeComputeReply, error) {
	reply := r.describe()
	if !seesAll(callerOf(ctx).user()) {
		withoutKeys(reply, r.hider())
	}
	if identity.FromContext(ctx).Role == identity.RoleOperator {
		if digest := r.users.Digest(); digest != [len(digest)]byte{} {
			reply.AclDigest = digest[:]
		}
		if digest := r.users.ObjectsDigest(); digest != [len(digest)]byte{} {
			reply.ObjectsAclDigest = digest[:]
		}
		if r.files != nil {
			reply.TrustedAuthorities, reply.CertificateSigner = r.files.Trust()
		}
	}
	return reply, nil
}

// Drain finishes what is under way and refuses what comes after.
func (r *rpcServer) Drain(ctx context.Context, req *rpcv1.DrainComputeRequest) (*rpcv1.DrainComputeReply, error) {
	if id := identity.FromContext(ctx); id.Role != identity.RoleOperator {
		return nil, status.Errorf(codes.PermissionDenied, "only the operator may drain a server; the caller is %s", id)
	}
	return &rpcv1.DrainComputeReply{Unfinished: r.drain(time.Duration(req.LimitMilliseconds) * time.Millisecond)}, nil
}

// Block answers nothing any more.
func (r *rpcServer) Block(ctx context.Context, req *rpcv1.BlockComputeRequest) (*rpcv1.BlockComputeReply, error) {
	if id := identity.FromContext(ctx); id.Role != identity.RoleOperator {
		return nil, status.Errorf(codes.PermissionDenied, "only the operator may block a server; the caller is %s", id)
	}
	if req.Reason == "" {
		return nil, status.Error(codes.InvalidArgument, "reason is empty: say what was lost")
	}
	r.core.Sessions.Block(req.Reason)
	r.core.Log.Error("blocked: nothing is answered from the index any more", "reason", req.Reason)
	return &rpcv1.BlockComputeReply{}, nil
}
