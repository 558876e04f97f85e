package memorypool

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dmindex/dmindex/pkg/volumes"
)

// remembered is what the operator remembers of memory pools from one look to the next: of
// their volumes, and of pods that were refused. It is in no object, since nothing is lost with it
// but time: an operator that starts waits for whole windows again.
type remembered struct {
	born time.Time

	mu      sync.Mutex
	copies  map[types.UID]refusedCopy            // by pool
	volumes map[types.UID]map[int]volumes.Memory // by pool and number; never changed, only replaced
}

func newRemembered(born time.Time) *remembered {
	return &remembered{born: born, volumes: map[types.UID]map[int]volumes.Memory{}, copies: map[types.UID]refusedCopy{}}
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
