package index

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
	do    func(*Reconciler, context.Context, *scope) error
}

// The steps that every list has.
var (
	keepState     = step{"keep what was decided", true, (*Reconciler).keepState}
	issueSecrets  = step{"issue the index's authority and password", false, (*Reconciler).issueSecrets}
	ensurePools   = step{"make the pools of templates", false, (*Reconciler).ensurePools}
	gatherMemory  = step{"look at the memory servers", true, (*Reconciler).gatherMemory}
	gatherCompute = step{"look at the compute servers", false, (*Reconciler).gatherCompute}
	checkDataLoss = step{"stop if data was lost", true, (*Reconciler).checkDataLoss}
	fenceGone     = step{"fence the clients of pods that are gone", false, (*Reconciler).fenceGone}
	divideKeys    = step{"divide the keys", true, (*Reconciler).divideKeys}
)

// lifecycle is how an index comes to be and is kept.
var lifecycle = []step{
	keepState,
	{"pin the image", false, (*Reconciler).pinImage},
	issueSecrets,
	ensurePools,
	{"make the Service", false, (*Reconciler).ensureService},
	gatherMemory,
	gatherCompute,
	{"compare the pools' transports", false, (*Reconciler).checkTransports},
	{"keep the passwords", false, (*Reconciler).keepPasswords},
	{"keep the certificate authority", false, (*Reconciler).keepAuthority},
	checkDataLoss,
	{"choose the backup that the index is loaded from", true, (*Reconciler).chooseBackup},
	{"choose memory servers", true, (*Reconciler).chooseMemory},
	{"have the index admitted", false, (*Reconciler).admit},
	{"let memory servers join", false, (*Reconciler).joinMemory},
	{"tell compute servers of the index", false, (*Reconciler).configure},
	fenceGone,
	divideKeys,
	{"scale the compute pools", false, (*Reconciler).scaleCompute},
	{"load the backup", false, (*Reconciler).loadBackup},
}

// whilePaused is what is done for an index with spec.paused: that is handed on to the pools of its
// templates, and what fails is repaired. Nothing else changes.
var whilePaused = []step{keepState, issueSecrets, ensurePools, gatherMemory, gatherCompute, checkDataLoss, {"look whether it was made", true, pausedBefore}, fenceGone, divideKeys}

// keepState comes first: what the steps after it rely on is in force, and written down. Where
// no record can be made, an index that was made is repaired all the same: that follows from what
// was acted upon before, and nothing more is decided (Annotate). Should its annotations be lost as
// well, it stops.
func (r *Reconciler) keepState(ctx context.Context, s *scope) error {
	err := r.Keep(ctx, s.index)
	if errors.Is(err, decision.ErrNoRecord) {
		s.problems.Add(err)
		return nil
	}
	return err
}

// pausedBefore halts an index that was paused before it was made: there is nothing to repair.
func pausedBefore(_ *Reconciler, _ context.Context, s *scope) error {
	if s.made() && s.verdict.recorded {
		return nil
	}
	return outcome.WaitFor(dmv1.ReasonPausedBySpec, "spec.paused is set, and the index is not made yet", 0)
}

// fromDividing are the steps from "divide the keys" on: the next stage of a change is made by them
// alone.
var fromDividing = lifecycle[slices.IndexFunc(lifecycle, func(s step) bool { return s.name == divideKeys.name }):]

// made reports whether the index may have acknowledged writes: from then on it is repaired.
func (s *scope) made() bool {
	return s.index.Annotations[dmv1.AnnotationCreated] != "" && s.index.DeletionTimestamp.IsZero()
}

// run does steps and returns what they could not do.
func (r *Reconciler) run(ctx context.Context, s *scope, steps []step) error {
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
func (r *Reconciler) resultFor(ctx context.Context, s *scope, err error) (ctrl.Result, error) {
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
