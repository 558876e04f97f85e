package index

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dmindex/dmindex/pkg/autoscale"
	"github.com/dmindex/dmindex/pkg/partition"
)

// remembered is what the operator remembers from one look to the next: of the load of indexes
// (since when one compute server has too much, how many were wanted), and of servers that seem to
// be lost. It is in no object, since nothing is lost with it but time: an operator that starts
// waits for whole windows again.
type remembered struct {
	born time.Time

	mu      sync.Mutex
	indexes map[types.UID]memory
}

// memory is of one index. A value.
type memory struct {
	maps  partition.Memory
	pools map[string]autoscale.Memory // by name; never changed, only replaced

	doubts map[uint16]doubt // of memory servers that seem to be lost; never changed, only replaced
}

func newRemembered(born time.Time) *remembered {
	return &remembered{born: born, indexes: map[types.UID]memory{}}
}

func (r *remembered) get(index types.UID) memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.indexes[index]
}

func (r *remembered) put(index types.UID, m memory) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.indexes[index] = m
}

func (r *remembered) forget(index types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.indexes, index)
}

// at is a time as memories have it.
func (r *remembered) at(now time.Time) time.Duration { return now.Sub(r.born) }
