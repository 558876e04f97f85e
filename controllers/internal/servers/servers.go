// Package servers speaks to memory and compute servers: what the controllers need of their
// services, and nothing else.
package servers

import (
	"context"
	"errors"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/controllers/internal/pki"
)

// Errors of calls, recognised by what the controllers do about them. All others: try again later.
var (
	// ErrNoRoom is returned by Admit when the server has not as much left as was asked for.
	ErrNoRoom = errors.New("no room")

	// ErrInUse is returned by Admit when the quota would fall below what is in use, and by
	// JoinServer when a member is to leave.
	ErrInUse = errors.New("quota is below what is in use")

	// ErrNotOffered is returned by a server of an older version that does not know the call.
	ErrNotOffered = errors.New("the server does not offer it")

	// ErrLeft is returned by JoinServer when the server left the index for good.
	ErrLeft = errors.New("the server left the index")

	// ErrRefused is returned when the server's address refused the connection: no process listens
	// there.
	ErrRefused = errors.New("its address refuses connections")

	// ErrOtherMap is returned by SwapMap when the map is not the expected one any more.
	ErrOtherMap = errors.New("partition map was changed by somebody else")
)

// Unfit is returned by a server that cannot start on its node, and waits for the node to be
// changed.
type Unfit struct {
	Why string // and what to change
}

func (u *Unfit) Error() string { return "it cannot start on its node: " + u.Why }

// Target is a server to speak to.
type Target struct {
	Namespace string
	Pod       string
	UID       string         // of the pod
	Address   string         // its IP and port
	Name      string         // in its certificate
	Authority *pki.Authority // of that certificate; signs the operator's
}

// Memory is a memory server.
type Memory interface {
	Describe(context.Context) (*rpcv1.DescribeMemoryReply, error)
	// Admit gives an index a quota of chunks and, if it is new, locks (0 = the server's default),
	// in host memory if so said.
	Admit(ctx context.Context, index string, chunks, locks uint64, hostLocks bool) error
	Evict(ctx context.Context, index string) error
	GetMap(ctx context.Context, index string) (*rpcv1.MapReply, error)
	SwapMap(ctx context.Context, index string, expected, generation uint64, encoded []byte) error
	// ListClients lists the clients of an index that the server knows; the home knows all, and
	// their names.
	ListClients(ctx context.Context, index string) ([]*rpcv1.ClientUse, error)
	// ListHoldings lists who holds which keys of an index; only the home knows.
	ListHoldings(ctx context.Context, index string) (*rpcv1.ListHoldingsReply, error)
	// AwaitHoldings waits, for at most limit, until the holdings of an index are others than those
	// of the version that was seen, and returns their version.
	AwaitHoldings(ctx context.Context, index string, seen uint64, limit time.Duration) (version uint64, err error)
	// JoinServer notes at an index's home how far another memory server is that joins the index,
	// and returns how far it is then. ErrInUse: it is a member, and cannot leave, or another server
	// joined under its id. ErrLeft: it left.
	JoinServer(ctx context.Context, index string, s *rpcv1.JoinedServer) (rpcv1.JoinedServer_State, error)
	// ListServers lists, at an index's home, the servers that joined and the clients that do not
	// reach all of them yet.
	ListServers(ctx context.Context, index string) (*rpcv1.ListServersReply, error)
	// Fence ends clients at the server, at most MaxFence. When it returns nil, nothing of theirs
	// takes effect there any more.
	Fence(ctx context.Context, index string, clients []uint32) error
	Close()
}

// MaxFence is how many clients one call of Fence takes.
const MaxFence = 256

// Compute is a compute server.
type Compute interface {
	Describe(context.Context) (*rpcv1.DescribeComputeReply, error)
	// Drain answers when the server has finished what it had, or says how much it has not.
	Drain(ctx context.Context) (unfinished uint64, err error)
	// Block makes the server answer nothing but that data was lost.
	Block(ctx context.Context, reason string) error
	Close()
}

// Dialer reaches servers. Safe for concurrent use.
type Dialer interface {
	Memory(Target) (Memory, error)
	Volume(Target) (Volume, error)
	Compute(Target) (Compute, error)
}
