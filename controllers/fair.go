package controllers

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// fairAgain is when an object comes back whose namespace had its share of the workers.
const fairAgain = 200 * time.Millisecond

// fair leaves workers to others: each namespace that has some may have as many as leave the same
// number to one more: half of them, a third if two have some, and so on. A lost node may
// have servers of all indexes of a namespace, and each keeps a worker until it is noticed. Nobody
// waits inside of a worker for a share: the object goes back to the queue, and the worker takes the
// next one.
//
// It is the queue's rate limiter as well. The queue forgets how often an object failed when that
// comes back after a while. Of one that was only sent back to the queue nothing is forgotten: else
// many that fail in one namespace would send each other back, and none would ever fail more seldom.
type fair struct {
	reconcile.Reconciler
	workqueue.TypedRateLimiter[reconcile.Request]
	workers int

	mu       sync.Mutex
	busy     map[string]int             // workers, by namespace
	sentBack map[reconcile.Request]bool // what the queue is about to forget
}

func newFair(r reconcile.Reconciler, workers int) *fair {
	return &fair{
		Reconciler: r, TypedRateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, slowestRetry),
		workers: workers, busy: map[string]int{}, sentBack: map[reconcile.Request]bool{},
	}
}

// Reconcile implements reconcile.Reconciler.
func (f *fair) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if !f.enter(request) {
		return ctrl.Result{RequeueAfter: fairAgain}, nil
	}
	defer f.leave(request.Namespace)
	return f.Reconciler.Reconcile(ctx, request)
}

// Forget implements workqueue.TypedRateLimiter.
func (f *fair) Forget(request reconcile.Request) {
	f.mu.Lock()
	back := f.sentBack[request]
	delete(f.sentBack, request)
	f.mu.Unlock()
	if !back {
		f.TypedRateLimiter.Forget(request)
	}
}

func (f *fair) enter(request reconcile.Request) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	has, namespaces := f.busy[request.Namespace], len(f.busy)
	if has == 0 {
		namespaces++
	}
	if has >= max(1, f.workers/(namespaces+1)) {
		f.sentBack[request] = true
		return false
	}
	f.busy[request.Namespace]++
	return true
}

func (f *fair) leave(namespace string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy[namespace]--; f.busy[namespace] == 0 {
		delete(f.busy, namespace)
	}
}
