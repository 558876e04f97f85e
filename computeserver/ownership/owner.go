package ownership

import (
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Opened is an open index and the client of its memory servers that opened it. Implementations are
// pointers.
type Opened interface {
	index.Index

	// Alive is nil while the client holds its leases, else why not, wrapping index.ErrFenced. It
	// never waits.
	Alive() error

	// Condemn gives the client up, for a reason: what its sessions wait for ends soon, and whatever
	// they try later fails with index.ErrFenced. It never waits; the first reason counts.
	Condemn(reason error)
}

// Owner is an open index of a design whose ranges have owners, with its client's part in the
// protocol that says who owns what: docs/design/ownership.md. The methods beside index.Partitioned
// are those of pool.Pool.
type Owner interface {
	Opened

	Log() []byte
	Take(r pool.Holding) error
	Give(start, end []byte) (written int, err error)

	// Servers are the memory servers of the index, the home first.
	Servers() []uint16
	Client() uint16
	Acquire(c pool.Claim) (pool.Acquired, error)
	Settle(start, end []byte, epoch uint64) error
	Release(start, end []byte, epoch uint64) error
	Holdings() ([]pool.Held, error)
	FenceOthers(server uint16, clients []uint16) error
}

// RangeState is how far a range is on its way to or from this server.
type RangeState string

// The states, in the order in which a range goes through them.
const (
	// the map gives it to this server, the home memory server has not yet
	RangeAcquiring RangeState = "Acquiring"
	// it is this server's; logs of its former owners are replayed
	RangeTaking   RangeState = "Taking"
	RangeSettling RangeState = "Settling" // they are, and the home is told
	RangeServing  RangeState = "Serving"
	// requests are not admitted any more, those that were are waited for
	RangeClosing   RangeState = "Closing"
	RangeGiving    RangeState = "Giving" // what was changed is written back
	RangeReleasing RangeState = "Releasing"
)

// RangeStates are all states, in the order in which a range goes through them.
var RangeStates = []RangeState{RangeAcquiring, RangeTaking, RangeSettling, RangeServing, RangeClosing, RangeGiving, RangeReleasing}

// RangeStatus is one range as this server sees it.
type RangeStatus struct {
	Start, End []byte
	Epoch      uint64 // 0 while it is acquired
	State      RangeState
	Reason     string // what is waited for; empty if nothing failed so far
	// the memory server where its former owner cannot be fenced, if that is the reason
	Unfenced uint16
	PoolFull bool // the last step found no memory in the pool: index.ErrPoolFull
}
