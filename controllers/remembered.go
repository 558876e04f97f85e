package controllers

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dmindex/dmindex/pkg/autoscale"
	"github.com/dmindex/dmindex/pkg/partition"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// remembered is what the operator remembers from one look to the next: of the load of indexes
// (since when one compute server has too much, how many were wanted), of servers that seem to be
// lost, and of volumes. It is in no object, since nothing is lost with it but time: an operator
// that starts waits for whole windows again.
type remembered struct {
	born time.Time

	mu      sync.Mutex
	indexes map[types.UID]memory
	copies  map[types.UID]refusedCopy            // by pool
	volumes map[types.UID]map[int]volumes.Memory // by pool and number; never changed, only replaced
}

// memory is of one index. A value.
type memory struct {
	maps  partition.Memory
	pools map[string]autoscale.Memory // by name; never changed, only replaced

	doubts map[uint16]doubt // of memory servers that seem to be lost; never changed, only replaced
}

func newRemembered(born time.Time) *remembered {
	return &remembered{born: born, indexes: map[types.UID]memory{}, volumes: map[types.UID]map[int]volumes.Memory{}, copies: map[types.UID]refusedCopy{}}
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

// volumesOf are the memories of the volumes of a pool.
func (r *remembered) volumesOf(pool types.UID) map[int]volumes.Memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.volumes[pool]
}

// refusedCopy is why, and when, a pod for a further copy was refused last.
type refusedCopy struct {
	why string
	at  time.Time
}

// mostPools is of how many pools something is remembered: nobody tells that a pool is gone. When
// they are more all is forgotten. Then some pods of copies are tried again a little early, and
// silences are counted from the beginning.
const mostPools = 4096

func (r *remembered) refusedCopy(pool types.UID) refusedCopy {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.copies[pool]
}

func (r *remembered) refuseCopy(pool types.UID, c refusedCopy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.copies) >= mostPools {
		clear(r.copies)
	}
	r.copies[pool] = c
}

// putVolumes remembers what was decided about the volumes of a pool.
func (r *remembered) putVolumes(pool types.UID, all []*volumeScope) {
	memories := map[int]volumes.Memory{}
	for _, v := range all {
		memories[v.number] = v.actions.Memory
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(r.volumes, pool); len(memories) == 0 {
		return
	}
	if len(r.volumes) >= mostPools {
		clear(r.volumes)
	}
	r.volumes[pool] = memories
}

// at is a time as memories have it.
func (r *remembered) at(now time.Time) time.Duration { return now.Sub(r.born) }
