package index

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/pkg/partition"
)

// Limits of what follows handovers.
const (
	// followed is how old what the servers of an index said may be when the next stage of a change
	// is made by it. After that the servers are asked again.
	followed = 2 * time.Second

	// followEvery is the time between two stages of one index, at least.
	followEvery = 20 * time.Millisecond

	// handoverWait is how long one call waits at the home of an index.
	handoverWait = 20 * time.Second

	// mostHandovers is how many indexes are followed at once. Those beyond are asked now and then.
	mostHandovers = 256
)

// handovers follows the ranges of indexes from one owner to the next. The home of an index alone
// says when keys were handed over: a goroutine for each index that moves waits there, and puts the
// index into the reconcilers' queue when the next stage can be made. So no reconciler waits for a
// handover, and those of one index do not hold up another one.
//
//	reconciler: swap the map, follow(view, version of the holdings)
//	goroutine:  AwaitHoldings -> ListHoldings -> partition.Step: nothing to do? again
//	                                                             else: fired, event
//	reconciler: claim what was gathered, divide the keys by it; or look at everything
//
// A goroutine ends when it fired, when the home does not answer or nothing changed within
// handoverWait, when the reconciler follows the index anew, and when this operator does not lead
// any more. Whoever follows also comes back by the queue's own clock, so an event that never comes
// costs time and nothing else. A home of an older version does not offer AwaitHoldings: then that
// clock is all there is.
type handovers struct {
	dialer servers.Dialer
	events chan event.TypedGenericEvent[*dmv1.DMIndex] // to the queue of the reconciler

	mu  sync.Mutex
	ctx context.Context // while this operator leads; nil before
	all sync.WaitGroup
	of  map[types.UID]*handover
}

// handover is one index that is followed.
type handover struct {
	stop  context.CancelFunc
	scope *scope // what was gathered when it began
	fired bool   // the next stage can be made
}

func newHandovers(d servers.Dialer) *handovers {
	return &handovers{dialer: d, events: make(chan event.TypedGenericEvent[*dmv1.DMIndex]), of: map[types.UID]*handover{}}
}

// Start implements manager.Runnable: it runs while this operator leads.
func (h *handovers) Start(ctx context.Context) error {
	h.mu.Lock()
	h.ctx = ctx
	h.mu.Unlock()
	<-ctx.Done()
	h.mu.Lock()
	h.ctx = nil
	h.mu.Unlock()
	h.all.Wait()
	return nil
}

// follow begins to wait for the next stage of an index, from holdings of a version on. It is false
// if the index is not followed: this operator does not lead, or follows too many.
func (h *handovers) follow(s *scope, home servers.Target, seen uint64, now func() time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endLocked(s.index.UID)
	if h.ctx == nil || len(h.of) >= mostHandovers {
		return false
	}
	ctx, stop := context.WithCancel(h.ctx)
	o := &handover{stop: stop, scope: s}
	h.of[s.index.UID] = o
	index, view := s.index.DeepCopy(), s.view
	h.all.Go(func() {
		defer stop()
		ready := h.await(ctx, home, view, seen, now)
		h.mu.Lock()
		current := h.of[index.UID] == o
		if o.fired = current && ready; current && !ready {
			delete(h.of, index.UID)
		}
		h.mu.Unlock()
		if current && ready {
			select {
			case h.events <- event.TypedGenericEvent[*dmv1.DMIndex]{Object: index}:
			case <-ctx.Done():
			}
		}
	})
	return true
}

// await waits at the home until partition.Step has something to do. It is false if it cannot be
// found out.
func (h *handovers) await(ctx context.Context, home servers.Target, view partition.View, seen uint64, now func() time.Duration) bool {
	client, err := h.dialer.Memory(home)
	if err != nil {
		return false
	}
	defer client.Close()
	pause := time.NewTimer(followEvery)
	defer pause.Stop()
	for !stageReady(view, now()) {
		version, err := client.AwaitHoldings(ctx, view.Index, seen, handoverWait)
		if err != nil || version == seen {
			return false
		}
		list, err := client.ListHoldings(ctx, view.Index)
		if err != nil {
			return false
		}
		seen, view.Holdings = list.Version, holdingsOf(list.Holdings)
	}
	select {
	case <-pause.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// stageReady reports whether there is something to do, or nothing is waited for any more.
func stageReady(view partition.View, now time.Duration) bool {
	view.Now = now
	a, err := partition.Step(view)
	return err != nil || a.Swap != nil || a.Waiting == "" || len(a.Drain)+len(a.Delete) > 0
}

// claim is what was gathered about an index whose next stage can be made now, unless that is too
// old, or the index was changed since; nil then. What was followed is not any more.
func (h *handovers) claim(index *dmv1.DMIndex, now time.Time) *scope {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := h.of[index.UID]
	if o == nil || !o.fired {
		return nil
	}
	h.endLocked(index.UID)
	s := o.scope
	if now.Sub(s.gathered) >= followed || s.index.Generation != index.Generation || decision.Identity(s.index) != decision.Identity(index) {
		return nil
	}
	return s
}

// end ends to follow an index.
func (h *handovers) end(index types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endLocked(index)
}

func (h *handovers) endLocked(index types.UID) {
	if o := h.of[index]; o != nil {
		o.stop()
		delete(h.of, index)
	}
}

// holdingsOf are holdings as package partition has them.
func holdingsOf(all []*rpcv1.Holding) (holdings []partition.Holding) {
	for _, h := range all {
		holdings = append(holdings, partition.Holding{Start: h.Start, End: h.End, Pod: h.Name, Orphan: h.Fenced, Settled: len(h.Inherits) == 0})
	}
	return holdings
}
