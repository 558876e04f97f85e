//schedule:off a memory server runs it under its lock, and the servers of poolsim in one piece

package pool

// Two tables of epochs, which know nothing of each other: memory that was given up is of two
// classes (reclaim.go).
//
//	class       what leads to it, and so what a client did that has passed an epoch
//	cached      copies of nodes in caches: it dropped them, and ended its operations
//	uncached    nothing but the memory, for operations: it ended its operations
//
// A rule of EpochTable holds in each: memory of a class is used again two epochs of that class
// after the one under which it was given up. So garbage that no cache leads to empties no cache.

// EpochTables are what one memory server knows about reclamation in one index. They belong to one
// goroutine at a time.
type EpochTables struct {
	cached, uncached *EpochTable
}

// NewEpochTables are the tables of a server that just started.
func NewEpochTables() *EpochTables { return &EpochTables{NewEpochTable(), NewEpochTable()} }

// Join is EpochTable.Join for both. The client is told of both epochs.
func (t *EpochTables) Join(client uint16) (epoch, uncached uint64) {
	return t.cached.Join(client), t.uncached.Join(client)
}

// Found is EpochTable.Found for both.
func (t *EpochTables) Found(client uint16) {
	t.cached.Found(client)
	t.uncached.Found(client)
}

// Leave is EpochTable.Leave for both.
func (t *EpochTables) Leave(client uint16) {
	t.cached.Leave(client)
	t.uncached.Leave(client)
}

// Renew is EpochTable.Renew for both. A client that is refused by either is to be given up,
// whatever the other one has taken.
func (t *EpochTables) Renew(client uint16, e Epochs) (r Renewal, err error) {
	if r.Epoch, r.Safe, err = t.cached.Renew(client, e.Passed, e.Wanted); err == nil {
		r.UncachedEpoch, r.UncachedSafe, err = t.uncached.Renew(client, e.UncachedPassed, e.UncachedWanted)
	}
	return r, err
}
