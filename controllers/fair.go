package controllers

import (
	"context"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// fairAgain is when an object comes back whose namespace had its share of the workers.
const fairAgain = 200 * time.Millisecond

// fair leaves workers to others: objects of one namespace have a share of them. A lost node may
// have servers of all indexes of a namespace, and each keeps a worker until it is noticed. Nobody
// waits inside of a worker for a share: the object goes back to the queue, and the worker takes the
// next one.
type fair struct {
	reconcile.Reconciler
	share int // of workers, for a namespace

	mu   sync.Mutex
	busy map[string]int // workers, by namespace
}

func newFair(r reconcile.Reconciler, workers int) *fair {
	return &fair{Reconciler: r, share: max(1, workers/2), busy: map[string]int{}}
}

// Reconcile implements reconcile.Reconciler.
func (f *fair) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if !f.enter(request.Namespace) {
		return ctrl.Result{RequeueAfter: fairAgain}, nil
	}
	defer f.leave(request.Namespace)
	return f.Reconciler.Reconcile(ctx, request)
}

func (f *fair) enter(namespace string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy[namespace] >= f.share {
		return false
	}
	f.busy[namespace]++
	return true
}

func (f *fair) leave(namespace string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy[namespace]--; f.busy[namespace] == 0 {
		delete(f.busy, namespace)
	}
}
