package ownership

import (
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Opened is an open index and the client of its memory servers that opened it. Implementations are
// pointers.
type Opened interface {
	index.Index

	// Alive returns nil while the client holds its leases, and otherwise the reason, which wraps
	// index.ErrFenced. It never waits.
	Alive() error

	// Condemn gives the client up, for a reason. Waits of its sessions end soon, and their later
	// operations fail with index.ErrFenced. It never waits; the first reason counts.
	Condemn(reason error)
}

// Owner is an open index of a design whose ranges have owners, with its client's part in the
// ownership protocol (docs/design/ownership.md). The methods besides those of index.Partitioned are
// pool.Pool's.
type Owner interface {
	Opened

	Log() []byte
	Take(r pool.Holding) error
	Give(start, end []byte) (written int, err error)

	// Servers returns the memory servers of the index, the home first.
	Servers() []uint16
	// Others returns the memory servers of the index but the home, as the home knows them now. A
	// client that was fenced at the home before the call can use no other server, nor will it.
	Others() ([]uint16, error)
	Client() uint32
	Acquire(c pool.Claim) (pool.Acquired, error)
	Settle(start, end []byte, epoch uint64) error
	Release(start, end []byte, epoch uint64) error
	Holdings() ([]pool.Held, error)
	FenceOthers(server uint16, clients []uint32) error
}

// RangeState is the state of a range on its way to or from this server.
type RangeState string

// The states, in the order in which a range goes through them.
const (
	// the map gives it to this server; the home memory server has not granted it yet
	RangeAcquiring RangeState = "Acquiring"
	// it is granted; the logs of its former owners are being replayed
	RangeTaking   RangeState = "Taking"
	RangeSettling RangeState = "Settling" // the logs are replayed; the home is being told
	RangeServing  RangeState = "Serving"
	// new requests are not admitted; admitted ones are waited for
	RangeClosing   RangeState = "Closing"
	RangeGiving    RangeState = "Giving" // changes are being written back
	RangeReleasing RangeState = "Releasing"
)

// RangeStates are all states, in the order in which a range goes through them.
var RangeStates = []RangeState{RangeAcquiring, RangeTaking, RangeSettling, RangeServing, RangeClosing, RangeGiving, RangeReleasing}

// RangeStatus is one range as this server sees it.
type RangeStatus struct {
	Start, End []byte
	Epoch      uint64 // 0 before the grant
	State      RangeState
	Reason     string // what the range waits for; empty if nothing failed so far
	// the memory server at which its former owner cannot be fenced, if that is the reason
	Unfenced uint16
	PoolFull bool // the last step found no memory in the pool: index.ErrPoolFull
}
