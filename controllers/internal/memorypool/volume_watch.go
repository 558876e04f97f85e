package memorypool

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/controllers/internal/volume"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// volumeWatch asks the servers of volumes with two copies every volumeLook whether they still are
// what they were when their pool was looked at last. A settled pool is looked at every 20 s, which
// is too seldom for a fail-over, and a look asks far more than this. The first answer that is
// another one, or that does not come, puts the pool into the reconcilers' queue, which decides by
// what it finds itself; the pool is not watched any more until it has been looked at.
// Since when a server has not answered is kept for that look, which need not begin to count.
type volumeWatch struct {
	dialer servers.Dialer
	now    func() time.Time
	events chan event.TypedGenericEvent[*dmv1.DMMemoryPool] // to the queue of the reconciler

	mu     sync.Mutex
	pools  map[types.UID]*watchedPool
	silent map[types.UID]map[string]time.Time // by pool and copy; values are never changed
}

// watchedPool is a pool that is settled. Values are never changed, only replaced.
type watchedPool struct {
	pool    *dmv1.DMMemoryPool
	servers []watchedServer
}

// watchedServer is a server and what it said last.
type watchedServer struct {
	volume int
	copy   string // by which views name it
	target servers.Target
	said   servers.VolumeReport
}

// mostWatched is how many pools are watched. Those beyond are looked at every volumeLook.
const mostWatched = 1024

func newVolumeWatch(d servers.Dialer, now func() time.Time) *volumeWatch {
	return &volumeWatch{dialer: d, now: now, events: make(chan event.TypedGenericEvent[*dmv1.DMMemoryPool]),
		pools: map[types.UID]*watchedPool{}, silent: map[types.UID]map[string]time.Time{}}
}

// Start implements manager.Runnable: it runs while this operator leads.
func (w *volumeWatch) Start(ctx context.Context) error {
	tick := time.NewTicker(volumeLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, pool := range w.look(ctx) {
			select {
			case w.events <- event.TypedGenericEvent[*dmv1.DMMemoryPool]{Object: pool}:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// watch watches the pool if it is settled and a volume of it has two copies, and no longer if not.
// It is false if the pool should be watched and cannot be.
func (w *volumeWatch) watch(s *scope) bool {
	p := &watchedPool{pool: s.pool.DeepCopy()}
	for _, v := range s.volumes {
		if v.view.Backup == nil {
			continue
		}
		for _, named := range []volume.Proc{v.view.Primary, *v.view.Backup} {
			c, said := v.copyOf(named.UID), v.reports[named.UID]
			if c == nil || c.pod == nil || said.Proc.Pod == "" {
				return false // that is not settled
			}
			p.servers = append(p.servers, watchedServer{v.number, c.uid, servers.TargetOf(c.pod, config.PortControl, s.authority), said})
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pools, s.pool.UID)
	delete(w.silent, s.pool.UID)
	if len(p.servers) == 0 {
		return true
	}
	if len(w.pools) >= mostWatched {
		return false
	}
	w.pools[s.pool.UID] = p
	return true
}

// end ends to watch a pool.
func (w *volumeWatch) end(pool types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pools, pool)
	delete(w.silent, pool)
}

// silences is since when servers of a pool have not answered, by the UIDs of their copies.
func (w *volumeWatch) silences(pool types.UID) map[string]time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.silent[pool]
}

// look asks all servers once, side by side, and returns the pools that are not as they were. They
// are not watched any more.
func (w *volumeWatch) look(ctx context.Context) (changed []*dmv1.DMMemoryPool) {
	type asked struct {
		of *watchedPool
		watchedServer
	}
	var all []asked
	w.mu.Lock()
	for _, p := range w.pools {
		for _, s := range p.servers {
			all = append(all, asked{p, s})
		}
	}
	w.mu.Unlock()
	differs, silent, begun := make([]bool, len(all)), make([]bool, len(all)), w.now()
	servers.Each(len(all), func(i int) { differs[i], silent[i] = w.differs(ctx, all[i].watchedServer) })
	since := w.now().Add(-volumeLook) // no earlier, since this process may have stood still
	if begun.After(since) {
		since = begun
	}
	if ctx.Err() != nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	silences := map[*watchedPool]map[string]time.Time{}
	for i, a := range all {
		if !differs[i] || w.pools[a.of.pool.UID] != a.of {
			continue
		}
		if silences[a.of] == nil {
			silences[a.of] = map[string]time.Time{}
			changed = append(changed, a.of.pool)
		}
		if silent[i] {
			silences[a.of][a.copy] = since
		}
	}
	for p, silent := range silences { // in any order
		delete(w.pools, p.pool.UID)
		w.silent[p.pool.UID] = silent
	}
	return changed
}

// differs reports whether a server is not what it was, or does not answer within volumeLook.
func (w *volumeWatch) differs(ctx context.Context, s watchedServer) (differs, silent bool) {
	c, err := w.dialer.Volume(s.target)
	if err != nil {
		return true, true
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, volumeLook)
	defer cancel()
	now, err := c.Report(ctx, s.volume+1, s.copy)
	return err != nil || now.Proc != s.said.Proc || now.Role != s.said.Role || now.View != s.said.View ||
		now.Joins != (volumes.Proc{}) || now.Misses >= volumeLook || now.Differences != s.said.Differences, err != nil
}
