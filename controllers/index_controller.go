package controllers

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/kube"
)

// DMIndexReconciler reconciles DMIndex.
type DMIndexReconciler struct {
	base
	told told
}

// step is one step in the life of an index. It is done again at every reconciliation, and does
// nothing if all is as it should be.
type step struct {
	name string
	do   func(*DMIndexReconciler, context.Context, *indexScope) error
}

// divideKeys is the name of that step.
const divideKeys = "divide the keys"

// lifecycle is how an index comes to be and is kept. A step that has to wait for something halts
// the list. Steps that serve an index which exists come after those that wait only while it is
// made: a memory server that is away must not keep partition maps from changing.
var lifecycle = []step{
	{"pin the image", (*DMIndexReconciler).pinImage},
	{"issue the index's authority and password", (*DMIndexReconciler).issueSecrets},
	{"make the pools of templates", (*DMIndexReconciler).ensurePools},
	{"make the Service", (*DMIndexReconciler).ensureService},
	{"look at the memory servers", (*DMIndexReconciler).gatherMemory},
	{"look at the compute servers", (*DMIndexReconciler).gatherCompute},
	{"compare the pools' transports", (*DMIndexReconciler).checkTransports},
	{"stop if data was lost", (*DMIndexReconciler).checkDataLoss},
	{"choose memory servers", (*DMIndexReconciler).chooseMemory},
	{"have the index admitted", (*DMIndexReconciler).admit},
	{"tell compute servers of the index", (*DMIndexReconciler).configure},
	{"fence the clients of pods that are gone", (*DMIndexReconciler).fenceGone},
	{divideKeys, (*DMIndexReconciler).divideKeys},
	{"scale the compute pools", (*DMIndexReconciler).scaleCompute},
}

// fromDividing are the steps from "divide the keys" on: the next stage of a change is made by them
// alone.
var fromDividing = lifecycle[slices.IndexFunc(lifecycle, func(s step) bool { return s.name == divideKeys }):]

// Reconcile makes one index true.
func (r *DMIndexReconciler) Reconcile(ctx context.Context, request ctrl.Request) (_ ctrl.Result, err error) {
	s := &indexScope{index: &dmv1.DMIndex{}}
	if err := r.Get(ctx, request.NamespacedName, s.index); err != nil {
		if apierrors.IsNotFound(err) {
			r.told.forget(request.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := s.index.Status.DeepCopy()
	switch {
	case !s.index.DeletionTimestamp.IsZero():
		if err = r.finalize(ctx, s); err == nil {
			r.remembered.forget(s.index.UID)
			r.handovers.end(s.index.UID)
			return ctrl.Result{}, nil
		}
		return r.finish(ctx, s, before, err)
	case s.index.Spec.Paused:
		return r.finish(ctx, s, before, r.pause(ctx, s))
	case !controllerutil.ContainsFinalizer(s.index, dmv1.Finalizer):
		base := s.index.DeepCopy()
		controllerutil.AddFinalizer(s.index, dmv1.Finalizer)
		if err := r.Patch(ctx, s.index, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}), kube.Owner); err != nil {
			return result(client.IgnoreNotFound(err))
		}
	}
	steps := lifecycle
	if moving := r.handovers.claim(s.index, r.now()); moving != nil {
		moving.index, moving.waiting, s = s.index, moving.earlier, moving
		steps = fromDividing
	}
	for _, step := range steps {
		if err = step.do(r, ctx, s); err != nil {
			if _, halted := err.(*waitFor); !halted {
				err = fmt.Errorf("%s: %w", step.name, err)
			}
			break
		}
	}
	return r.finish(ctx, s, before, err)
}

// finish writes the status and says when to look again.
func (r *DMIndexReconciler) finish(ctx context.Context, s *indexScope, before *dmv1.DMIndexStatus, err error) (ctrl.Result, error) {
	if passing(err) {
		return result(err)
	}
	s.summarize(err)
	r.tell(s.index, before)
	if err := kube.ApplyStatus(ctx, &r.Writer, s.index, before, &s.index.Status); err != nil {
		return ctrl.Result{}, err
	}
	after, err := result(err)
	if err == nil && (s.waiting != "" || s.fencePending != "" || s.poolFull != "" || s.short != nil || s.unfitCompute() != "") {
		after.RequeueAfter = requeueSoon
		if s.waiting != "" {
			after.RequeueAfter = again(s.mapAge)
		}
		if s.following {
			after.RequeueAfter = max(after.RequeueAfter, followedAgain)
		}
	} else if err == nil && s.moved {
		after.RequeueAfter = again(0) // what the compute servers said is older than the map
	} else if err == nil && s.unfenced != "" {
		after.RequeueAfter = s.fenceAgain(r.now())
	}
	if err == nil && s.view.Owned {
		after.RequeueAfter = min(after.RequeueAfter, ownersWatched)
	}
	if err == nil && s.watch {
		after.RequeueAfter = min(after.RequeueAfter, watched)
	}
	return after, err
}

// followedAgain is when to look again, at least, at an index that is followed: the home tells when
// the next stage can be made.
const followedAgain = 500 * time.Millisecond

// again is when to look again at what is waited for while ranges move, and nobody tells when it is
// done. The longer the map has been what it is, the later: something else is waited for then.
func again(mapAge time.Duration) time.Duration {
	return min(max(50*time.Millisecond, mapAge/4), requeueSoon)
}

// pause hands spec.paused on to the pools of templates, and looks without touching.
func (r *DMIndexReconciler) pause(ctx context.Context, s *indexScope) error {
	if imageOf(s.index) != "" {
		if err := r.ensurePools(ctx, s); err != nil {
			return err
		}
	}
	if err := r.gatherMemory(ctx, s); err != nil {
		return err
	}
	return r.gatherCompute(ctx, s)
}

// tell makes events of conditions that changed.
func (r *DMIndexReconciler) tell(index *dmv1.DMIndex, before *dmv1.DMIndexStatus) {
	for _, kind := range []string{dmv1.ConditionAvailable, dmv1.ConditionDataLost} {
		was, is := find(before.Conditions, kind), find(index.Status.Conditions, kind)
		if is == nil || was != nil && was.Status == is.Status || was == nil && is.Status != "True" {
			continue
		}
		level := corev1.EventTypeNormal
		if (kind == dmv1.ConditionAvailable) != (is.Status == "True") {
			level = corev1.EventTypeWarning
		}
		r.events.Eventf(index, nil, level, is.Reason, "Reconcile", "%s is now %s: %s", kind, is.Status, is.Message)
	}
	was, is := find(before.Conditions, dmv1.ConditionProgressing), find(index.Status.Conditions, dmv1.ConditionProgressing)
	if is != nil && (is.Reason == dmv1.ReasonMemoryPending || is.Reason == dmv1.ReasonQuotaRefused) && (was == nil || was.Reason != is.Reason) {
		r.events.Eventf(index, nil, corev1.EventTypeWarning, is.Reason, "Admit", "%s", is.Message)
	}
}
