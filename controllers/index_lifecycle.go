package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/serverpod"
)

// step is one step in the life of an index. It is done again at every reconciliation, and does
// nothing if all is as it should be.
//
// Steps that make something must not keep those from working that repair: an index whose template
// the API server refuses, whose quota cannot be lowered or whose Service has somebody else's name
// still needs its dead compute servers fenced and their keys served. So the outcome of a step
// counts in one of two ways:
//
//	index          step waits or fails             what follows
//	not yet made   any                             nothing: each step needs those before it
//	made           halts (the steps after it need
//	               what it found out)              nothing
//	made           any other                       all the others; what went wrong is collected
//
// What was collected is told by Progressing and Degraded. Available is what the servers say.
type step struct {
	name  string
	halts bool
	do    func(*DMIndexReconciler, context.Context, *indexScope) error
}

// The steps that every list has.
var (
	keepState     = step{"keep what was decided", true, (*DMIndexReconciler).keepIndexState}
	issueSecrets  = step{"issue the index's authority and password", false, (*DMIndexReconciler).issueSecrets}
	ensurePools   = step{"make the pools of templates", false, (*DMIndexReconciler).ensurePools}
	gatherMemory  = step{"look at the memory servers", true, (*DMIndexReconciler).gatherMemory}
	gatherCompute = step{"look at the compute servers", false, (*DMIndexReconciler).gatherCompute}
	checkDataLoss = step{"stop if data was lost", true, (*DMIndexReconciler).checkDataLoss}
	fenceGone     = step{"fence the clients of pods that are gone", false, (*DMIndexReconciler).fenceGone}
	divideKeys    = step{"divide the keys", true, (*DMIndexReconciler).divideKeys}
)

// lifecycle is how an index comes to be and is kept.
var lifecycle = []step{
	keepState,
	{"pin the image", false, (*DMIndexReconciler).pinImage},
	issueSecrets,
	ensurePools,
	{"make the Service", false, (*DMIndexReconciler).ensureService},
	gatherMemory,
	gatherCompute,
	{"compare the pools' transports", false, (*DMIndexReconciler).checkTransports},
	{"keep the passwords", false, (*DMIndexReconciler).keepPasswords},
	{"keep the certificate authority", false, (*DMIndexReconciler).keepIndexAuthority},
	checkDataLoss,
	{"choose the backup that the index is loaded from", true, (*DMIndexReconciler).chooseBackup},
	{"choose memory servers", true, (*DMIndexReconciler).chooseMemory},
	{"have the index admitted", false, (*DMIndexReconciler).admit},
	{"let memory servers join", false, (*DMIndexReconciler).joinMemory},
	{"tell compute servers of the index", false, (*DMIndexReconciler).configure},
	fenceGone,
	divideKeys,
	{"scale the compute pools", false, (*DMIndexReconciler).scaleCompute},
	{"load the backup", false, (*DMIndexReconciler).loadBackup},
}

// whilePaused is what is done for an index with spec.paused: that is handed on to the pools of its
// templates, and what fails is repaired. Nothing else changes.
var whilePaused = []step{keepState, issueSecrets, ensurePools, gatherMemory, gatherCompute, checkDataLoss, {"look whether it was made", true, pausedBefore}, fenceGone, divideKeys}

// keepIndexState comes first: what the steps after it rely on is in force, and written down. Where
// no record can be made, an index that was made is repaired all the same: that follows from what
// was acted upon before, and nothing more is decided (Annotate). Should its annotations be lost as
// well, it stops.
func (r *DMIndexReconciler) keepIndexState(ctx context.Context, s *indexScope) error {
	err := r.Keep(ctx, s.index)
	if errors.Is(err, decision.ErrNoRecord) {
		s.problems.Add(err)
		return nil
	}
	return err
}

// pausedBefore halts an index that was paused before it was made: there is nothing to repair.
func pausedBefore(_ *DMIndexReconciler, _ context.Context, s *indexScope) error {
	if s.made() && s.verdict.recorded {
		return nil
	}
	return outcome.WaitFor(dmv1.ReasonPausedBySpec, "spec.paused is set, and the index is not made yet", 0)
}

// fromDividing are the steps from "divide the keys" on: the next stage of a change is made by them
// alone.
var fromDividing = lifecycle[slices.IndexFunc(lifecycle, func(s step) bool { return s.name == divideKeys.name }):]

// made reports whether the index may have acknowledged writes: from then on it is repaired.
func (s *indexScope) made() bool {
	return s.index.Annotations[dmv1.AnnotationCreated] != "" && s.index.DeletionTimestamp.IsZero()
}

// run does steps and returns what they could not do.
func (r *DMIndexReconciler) run(ctx context.Context, s *indexScope, steps []step) error {
	var all outcome.List
	for _, step := range steps {
		err := step.do(r, ctx, s)
		for _, err := range append(outcome.Flat(err), s.problems...) {
			if _, halted := err.(*outcome.Wait); !halted {
				err = fmt.Errorf("%s: %w", step.name, err)
			}
			all.Add(err)
		}
		s.problems = nil
		if err != nil && step.halts || len(all) > 0 && !s.made() {
			break
		}
	}
	return all.Err()
}

// resultFor is result for an index. One that was made is looked at as often as it needs, however
// often the queue saw something fail in it.
func (r *DMIndexReconciler) resultFor(ctx context.Context, s *indexScope, err error) (ctrl.Result, error) {
	after, failed := outcome.Result(err)
	if failed == nil || !s.made() {
		return after, failed
	}
	if r.Logged.Once(s.index.UID, failed.Error()) {
		logf.FromContext(ctx).Error(failed, "a step failed; those that do not need it were done")
	}
	next := outcome.Recheck // the API server says no until something is changed, and that tells
	for _, err := range outcome.Flat(err) {
		if _, waits := err.(*outcome.Wait); !waits && !serverpod.Refused(err) && !errors.Is(err, kube.ErrNameTaken) {
			next = outcome.RequeueSoon
		}
	}
	return ctrl.Result{RequeueAfter: next}, nil
}
