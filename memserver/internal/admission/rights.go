package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/internal/core"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/pool"
)

// right says who may make a call.
type right uint8

const (
	nobody       right = iota // also for every method that rights does not name
	anybody                   // with an identity
	itsIndex                  // the operator, and members of the index that the request names
	onlyOperator              // the operator
)

// rights of all methods.
var rights = map[string]right{
	rpcv1.Memory_Describe_FullMethodName:      anybody,
	rpcv1.Memory_Admit_FullMethodName:         onlyOperator,
	rpcv1.Memory_Evict_FullMethodName:         onlyOperator,
	rpcv1.Memory_Register_FullMethodName:      itsIndex,
	rpcv1.Memory_Connect_FullMethodName:       itsIndex,
	rpcv1.Memory_Renew_FullMethodName:         itsIndex,
	rpcv1.Memory_Fence_FullMethodName:         itsIndex,
	rpcv1.Memory_Forget_FullMethodName:        itsIndex,
	rpcv1.Memory_ListClients_FullMethodName:   itsIndex,
	rpcv1.Memory_AllocateChunk_FullMethodName: itsIndex,
	rpcv1.Memory_FreeChunk_FullMethodName:     itsIndex,
	rpcv1.Memory_GetMap_FullMethodName:        itsIndex,
	rpcv1.Memory_SwapMap_FullMethodName:       onlyOperator,
	rpcv1.Memory_AcquireRange_FullMethodName:  itsIndex,
	rpcv1.Memory_SettleRange_FullMethodName:   itsIndex,
	rpcv1.Memory_ReleaseRange_FullMethodName:  itsIndex,
	rpcv1.Memory_ListHoldings_FullMethodName:  itsIndex,
	rpcv1.Memory_AwaitHoldings_FullMethodName: onlyOperator,
	rpcv1.Memory_JoinServer_FullMethodName:    onlyOperator,
	rpcv1.Memory_ListServers_FullMethodName:   itsIndex,
	rpcv1.Memory_Drain_FullMethodName:         onlyOperator,
	rpcv1.Volume_Report_FullMethodName:        onlyOperator,
	rpcv1.Volume_Obey_FullMethodName:          onlyOperator,
	rpcv1.Volume_Join_FullMethodName:          onlyOperator,
	rpcv1.Volume_Stop_FullMethodName:          onlyOperator,
	rpcv1.Volume_AwaitView_FullMethodName:     anybody,
	healthv1.Health_Check_FullMethodName:      anybody,
	healthv1.Health_List_FullMethodName:       anybody,
	healthv1.Health_Watch_FullMethodName:      anybody,
}

// authorize reports whether caller may make a call, by an error. It also checks that the index that
// a request names is a possible one.
func authorize(caller identity.Identity, method string, request any) error {
	who := rights[method]
	index, named := "", false
	if r, ok := request.(interface{ GetIndex() string }); ok {
		index, named = r.GetIndex(), true
		if err := identity.CheckIndex(index); err != nil {
			return fmt.Errorf("%w: %w", ledger.ErrInvalid, err)
		}
	}
	allowed := false
	switch who {
	case anybody:
		allowed = caller.Role != identity.RoleNone
	case itsIndex:
		allowed = named && caller.MayUse(index)
	case onlyOperator:
		allowed = caller.Role == identity.RoleOperator
	}
	if allowed {
		return nil
	}
	name := method[strings.LastIndexByte(method, '/')+1:]
	if named {
		name += " of index " + index
	}
	return status.Errorf(codes.PermissionDenied, "%s may not call %s", caller, name)
}

// authorized calls authorize before every call.
func authorized(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := authorize(identity.FromContext(ctx), info.FullMethod, request); err != nil {
		return nil, statusOf(err)
	}
	return next(ctx, request)
}

// authorizedStream calls authorize before every stream, whose requests name no index.
func authorizedStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := authorize(identity.FromContext(stream.Context()), info.FullMethod, nil); err != nil {
		return statusOf(err)
	}
	return next(srv, stream)
}

// statuses of errors. The first that fits counts: a wait that was cut short while memory is being
// zeroed ended by its caller.
var statuses = []struct {
	err  error
	code codes.Code
}{
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{context.Canceled, codes.Canceled},
	{core.ErrStore, codes.Unavailable},
	{core.ErrNotQuiet, codes.DeadlineExceeded},
	{core.ErrEvicting, codes.NotFound},
	{ledger.ErrCleaning, codes.Unavailable},
	{ledger.ErrExhausted, codes.ResourceExhausted},
	{ledger.ErrHoldings, codes.OutOfRange},
	{ledger.ErrInUse, codes.FailedPrecondition},
	{ledger.ErrOtherMap, codes.FailedPrecondition},
	{ledger.ErrDraining, codes.FailedPrecondition},
	{ledger.ErrUnknownIndex, codes.NotFound},
	{ledger.ErrUnknownClient, codes.NotFound},
	{ledger.ErrFenced, codes.Aborted},
	{ledger.ErrNotOwned, codes.NotFound},
	{ledger.ErrStale, codes.Aborted},
	{ledger.ErrInvalid, codes.InvalidArgument},
	{pool.ErrEpoch, codes.InvalidArgument},
}

// statusOf returns err as a gRPC status.
func statusOf(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			return status.Error(s.code, err.Error())
		}
	}
	return status.Error(codes.Internal, err.Error())
}

// withStatus turns the errors of handlers into statuses.
func withStatus(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	reply, err := next(ctx, request)
	return reply, statusOf(err)
}
