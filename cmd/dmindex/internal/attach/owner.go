package attach

import (
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Owner is an open index of a design whose ranges have owners: it implements ownership.Owner.
type Owner struct {
	*Index
	design index.Partitioned
}

var _ ownership.Owner = (*Owner)(nil)

// Opened is what a compute server holds: the index itself, or with a design whose ranges have
// owners an Owner.
func (i *Index) Opened() ownership.Opened {
	if design, ok := i.Index.(index.Partitioned); ok {
		return &Owner{i, design}
	}
	return i
}

// Log implements ownership.Owner, as do all methods below.
func (o *Owner) Log() []byte                                     { return o.design.Log() }
func (o *Owner) Take(r pool.Holding) error                       { return o.design.Take(r) }
func (o *Owner) Give(start, end []byte) (written int, err error) { return o.design.Give(start, end) }
func (o *Owner) Servers() []uint16                               { return o.pool.Servers() }
func (o *Owner) Others() ([]uint16, error)                       { return o.pool.Others() }
func (o *Owner) Client() uint32                                  { return o.pool.Client() }

func (o *Owner) Acquire(c pool.Claim) (pool.Acquired, error) { return o.pool.Acquire(c) }
func (o *Owner) Settle(start, end []byte, epoch uint64) error {
	return o.pool.Settle(start, end, epoch)
}
func (o *Owner) Release(start, end []byte, epoch uint64) error {
	return o.pool.Release(start, end, epoch)
}
func (o *Owner) Holdings() ([]pool.Held, error) { return o.pool.Holdings() }
func (o *Owner) FenceOthers(server uint16, clients []uint32) error {
	return o.pool.FenceOthers(server, clients)
}
