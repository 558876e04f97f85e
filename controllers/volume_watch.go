package controllers

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// volumeWatch asks the servers of volumes with two copies every volumeLook whether they still are
// what they were when their pool was looked at last. A settled pool is looked at every 20 s, which
// is too seldom for a fail-over, and a look asks far more than this. The first answer that is
// another one, or that does not come, puts the pool into the reconcilers' queue, which decides by
// what it finds itself; the pool is not watched any more until it has been looked at.
type volumeWatch struct {
	dialer servers.Dialer
	events chan event.TypedGenericEvent[*dmv1.DMMemoryPool] // to the queue of the reconciler

	mu    sync.Mutex
	pools map[types.UID]*watchedPool
}

// watchedPool is a pool that is settled. Values are never changed, only replaced.
type watchedPool struct {
	pool    *dmv1.DMMemoryPool
	servers []watchedServer
}

// watchedServer is a server and what it said last.
type watchedServer struct {
	volume int
	target servers.Target
	said   servers.VolumeReport
}

// mostWatched is how many pools are watched. Those beyond are looked at every volumeLook.
const mostWatched = 1024

func newVolumeWatch(d servers.Dialer) *volumeWatch {
	return &volumeWatch{dialer: d, events: make(chan event.TypedGenericEvent[*dmv1.DMMemoryPool]), pools: map[types.UID]*watchedPool{}}
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
func (w *volumeWatch) watch(s *memoryPoolScope) bool {
	p := &watchedPool{pool: s.pool.DeepCopy()}
	for _, v := range s.volumes {
		if v.view.Backup == nil {
			continue
		}
		for _, named := range []volumeProc{v.view.Primary, *v.view.Backup} {
			pod, said := v.podOf(named.UID), v.reports[named.UID]
			if pod == nil || said.Proc.Pod == "" {
				return false // that is not settled
			}
			p.servers = append(p.servers, watchedServer{v.number, target(pod, config.PortControl, s.authority), said})
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pools, s.pool.UID)
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
	differs := make([]bool, len(all))
	each(len(all), func(i int) { differs[i] = w.differs(ctx, all[i].watchedServer) })
	if ctx.Err() != nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, a := range all {
		if uid := a.of.pool.UID; differs[i] && w.pools[uid] == a.of {
			delete(w.pools, uid)
			changed = append(changed, a.of.pool)
		}
	}
	return changed
}

// differs reports whether a server does not answer, or is not what it was.
func (w *volumeWatch) differs(ctx context.Context, s watchedServer) bool {
	c, err := w.dialer.Volume(s.target)
	if err != nil {
		return true
	}
	defer c.Close()
	now, err := c.Report(ctx, s.volume+1, s.target.UID)
	return err != nil || now.Proc != s.said.Proc || now.Role != s.said.Role || now.View != s.said.View ||
		now.Joins != (volumes.Proc{}) || now.Misses >= volumeLook || now.Differences != s.said.Differences
}
