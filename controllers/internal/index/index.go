// Package index makes DMIndexes true: an index gets pools, memory of them and a partition map that
// its compute servers serve by. What it was made of is never guessed, and it is served as long as
// its memory has its data.
package index

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/report"
	"github.com/dmindex/dmindex/pkg/grant"
)

// Reconciler reconciles DMIndex.
type Reconciler struct {
	reconciler.Base
	told       told
	settle     time.Duration // New
	turns      *turns        // to have indexes admitted
	remembered *remembered
	handovers  *handovers
	served     *served // for the metrics
}

// New returns a reconciler that remembers nothing. settle is for how long the compute servers that
// an index should have must have been the same before its partition map changes because some join
// or leave; below 0 the map does not wait.
func New(b reconciler.Base, settle time.Duration) *Reconciler {
	return &Reconciler{Base: b, settle: settle, turns: newTurns(), remembered: newRemembered(b.Now()), handovers: newHandovers(b.Dialer), served: newServed()}
}

// Runnables are what has to run beside the reconciler while this operator leads.
func (r *Reconciler) Runnables() []manager.Runnable { return []manager.Runnable{r.handovers} }

// Wakes are the indexes that the runnables want to be looked at.
func (r *Reconciler) Wakes() source.Source {
	return source.Channel(r.handovers.events, &handler.TypedEnqueueRequestForObject[*dmv1.DMIndex]{})
}

// Reconcile makes one index true.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (_ ctrl.Result, err error) {
	s := &scope{index: &dmv1.DMIndex{}}
	if err := r.Get(ctx, request.NamespacedName, s.index); err != nil {
		if apierrors.IsNotFound(err) {
			r.told.forget(request.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.dropOthersStatus(ctx, s.index); err != nil {
		return outcome.Result(client.IgnoreNotFound(err))
	}
	before := s.index.Status.DeepCopy()
	switch {
	case !s.index.DeletionTimestamp.IsZero():
		if err = r.finalize(ctx, s); err == nil {
			r.remembered.forget(s.index.UID)
			r.handovers.end(s.index.UID)
			r.served.forget(s.index.UID)
			return ctrl.Result{}, nil
		}
		return r.finish(ctx, s, before, err)
	case !controllerutil.ContainsFinalizer(s.index, dmv1.Finalizer):
		base := s.index.DeepCopy()
		controllerutil.AddFinalizer(s.index, dmv1.Finalizer)
		if err := r.Patch(ctx, s.index, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}), kube.Owner); err != nil {
			return outcome.Result(client.IgnoreNotFound(err))
		}
	}
	if s.index.Spec.Paused {
		return r.finish(ctx, s, before, r.run(ctx, s, whilePaused))
	}
	steps := lifecycle
	if moving := r.handovers.claim(s.index, r.Now()); moving != nil {
		moving.index, moving.waiting, s = s.index, moving.earlier, moving
		steps = fromDividing
	}
	return r.finish(ctx, s, before, r.run(ctx, s, steps))
}

// dropOthersStatus removes a status that names another object: a backup tool restored it with an
// index that is a new one. Its map and its conditions would be taken for this one's.
func (r *Reconciler) dropOthersStatus(ctx context.Context, index *dmv1.DMIndex) error {
	if shown := index.Status.Identity; shown == "" || grant.Of(shown, string(index.UID)) {
		return nil
	}
	written := index.DeepCopy()
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"status":null}`, index.ResourceVersion)
	if err := r.Status().Patch(ctx, written, client.RawPatch(types.MergePatchType, patch), kube.Owner); err != nil {
		return err
	}
	index.ResourceVersion, index.Status = written.ResourceVersion, dmv1.DMIndexStatus{}
	return nil
}

// finish writes the status and says when to look again.
func (r *Reconciler) finish(ctx context.Context, s *scope, before *dmv1.DMIndexStatus, err error) (ctrl.Result, error) {
	if outcome.Passing(err) {
		return outcome.Result(err)
	}
	if conflicting(err) {
		s.summarizeConflict(err)
	} else {
		s.summarize(err)
	}
	r.served.record(s)
	r.tell(s.index, before)
	if err := report.WriteStatus(ctx, &r.Writer, r.Figures, r.Now(), s.index, before, &s.index.Status, withFigures(&s.index.Status, before)); err != nil {
		return ctrl.Result{}, err
	}
	after, err := r.resultFor(ctx, s, err)
	if err == nil {
		after.RequeueAfter = min(after.RequeueAfter, s.nextLook(r.Now()))
	}
	return after, err
}

// nextLook is when to look again at an index because of what is going on in it.
func (s *scope) nextLook(now time.Time) time.Duration {
	next := outcome.Recheck
	switch {
	case s.waiting != "", s.fencePending != "", s.poolFull != "", s.short != nil, s.unfitCompute() != "":
		next = outcome.RequeueSoon
		if s.waiting != "" {
			next = again(s.mapAge)
		}
		if s.following {
			next = max(next, followedAgain)
		}
	case s.moved:
		next = again(0) // what the compute servers said is older than the map
	case s.unfenced != "":
		next = s.fenceAgain(now)
	}
	if s.joins != "" {
		next = min(next, outcome.RequeueSoon)
	}
	if s.passwordWaits {
		next = min(next, outcome.RequeueSoon)
	}
	if !s.passwordEnds.IsZero() {
		next = min(next, max(s.passwordEnds.Sub(now), time.Second))
	}
	if !s.authorityEnds.IsZero() {
		next = min(next, max(s.authorityEnds.Sub(now), time.Second))
	}
	if s.view.Owned {
		next = min(next, ownersWatched)
	}
	if s.watch > 0 {
		next = min(next, s.watch)
	}
	return next
}

// followedAgain is when to look again, at least, at an index that is followed: the home tells when
// the next stage can be made.
const followedAgain = 500 * time.Millisecond

// again is when to look again at what is waited for while ranges move, and nobody tells when it is
// done. The longer the map has been what it is, the later: something else is waited for then.
func again(mapAge time.Duration) time.Duration {
	return min(max(50*time.Millisecond, mapAge/4), outcome.RequeueSoon)
}

// tell makes events of conditions that changed.
func (r *Reconciler) tell(index *dmv1.DMIndex, before *dmv1.DMIndexStatus) {
	for _, kind := range []string{dmv1.ConditionAvailable, dmv1.ConditionDataLost} {
		was, is := apimeta.FindStatusCondition(before.Conditions, kind), apimeta.FindStatusCondition(index.Status.Conditions, kind)
		if is == nil || was != nil && was.Status == is.Status || was == nil && is.Status != "True" {
			continue
		}
		level := corev1.EventTypeNormal
		if (kind == dmv1.ConditionAvailable) != (is.Status == "True") {
			level = corev1.EventTypeWarning
		}
		r.Events.Eventf(index, nil, level, is.Reason, "Reconcile", "%s is now %s: %s", kind, is.Status, is.Message)
	}
	was, is := apimeta.FindStatusCondition(before.Conditions, dmv1.ConditionDegraded), apimeta.FindStatusCondition(index.Status.Conditions, dmv1.ConditionDegraded)
	if is != nil && troubles[is.Reason] && (was == nil || was.Reason != is.Reason) {
		r.Events.Eventf(index, nil, corev1.EventTypeWarning, is.Reason, "Reconcile", "%s", is.Message)
	}
}
