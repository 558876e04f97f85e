package controllers

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dmindex/dmindex/controllers/internal/reconciler"
)

// TestFair: a namespace whose objects keep their workers leaves half of them to others, and what it
// could not do comes back.
func TestFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		f := newFair(reconcile.Func(func(_ context.Context, r ctrl.Request) (ctrl.Result, error) {
			if r.Namespace == "slow" {
				<-stuck
			}
			return ctrl.Result{}, nil
		}), 4)
		for i := range 2 {
			go func() { _, _ = f.Reconcile(t.Context(), reconciler.Request("slow", fmt.Sprint(i))) }()
		}
		synctest.Wait()
		for namespace, want := range map[string]time.Duration{"slow": fairAgain, "other": 0} {
			if result, err := f.Reconcile(t.Context(), reconciler.Request(namespace, "b")); err != nil || result.RequeueAfter != want {
				t.Errorf("%s: %v %v, want to come back after %v", namespace, result, err, want)
			}
		}
		close(stuck)
		synctest.Wait()
		if result, err := f.Reconcile(t.Context(), reconciler.Request("slow", "b")); err != nil || result.RequeueAfter != 0 || len(f.busy) != 0 {
			t.Errorf("afterwards: %v %v, %v are busy", result, err, f.busy)
		}
	})
}

// TestFairShares: however many namespaces keep workers, one more gets as many as each of them.
func TestFairShares(t *testing.T) {
	f := newFair(nil, 16)
	for n, want := range []int{8, 5, 4, 3} {
		namespace, got := fmt.Sprint(n), 0
		for f.enter(reconciler.Request(namespace, "a")) {
			got++
		}
		if got != want {
			t.Errorf("namespace %d has %d workers, want %d", n, got, want)
		}
	}
	for f.busy["0"] > 0 {
		f.leave("0")
	}
	got := 0
	for f.enter(reconciler.Request("0", "a")) {
		got++
	}
	if got != 3 {
		t.Errorf("beside three others it has %d workers again", got)
	}
}

// TestFairRetries: an object that fails is tried ever more seldom, also if it is sent back to the
// queue in between, and at once again after it succeeded.
func TestFairRetries(t *testing.T) {
	f := newFair(nil, 2)
	object := reconciler.Request("ns", "a")
	want := firstRetry
	for range 5 {
		if wait := f.When(object); wait != want {
			t.Errorf("again after %v, want %v", wait, want)
		}
		want *= 2
		f.enter(reconciler.Request("ns", "other"))
		if f.enter(object) {
			t.Error("it has a worker")
		}
		f.Forget(object) // as the queue does
		f.leave("ns")
	}
	f.Forget(object)
	if wait := f.When(object); wait != firstRetry || len(f.sentBack) != 0 {
		t.Errorf("after it succeeded: again after %v, want %v; sent back %v", wait, firstRetry, f.sentBack)
	}
}
