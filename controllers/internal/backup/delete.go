package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
)

// How long a Job may take that deletes an artifact, and after how long one that failed is replaced.
const (
	deleteWithin = 10 * time.Minute
	deleteAgain  = 5 * time.Minute
)

// finalize ends what dumps, deletes the artifact if that is wanted, then releases the backup. In a
// namespace that is being deleted nothing can be made: the artifact stays, and the backup goes.
// Whoever sets deletionPolicy to Retain meanwhile ends a deletion that cannot succeed.
//
// Only the artifact of this very object is deleted: a copy of a DMBackup, from another cluster or a
// tool that restores objects, has the finalizer and the result of the original, and another UID.
func (r *DMBackupReconciler) finalize(ctx context.Context, s *scope) (err error) {
	b := s.backup
	if !controllerutil.ContainsFinalizer(b, dmv1.FinalizerArtifact) {
		return nil
	}
	// Another object's Job is none of this backup, and nothing that a deletion could wait for.
	if s.job, err = LookAtJob(ctx, &r.Base, b, build.DumpJobName(b.Name)); err != nil && !errors.Is(err, kube.ErrNameTaken) {
		return err
	}
	// A Job whose program succeeded may make another pod, which would make the artifact anew, until
	// Kubernetes says that the Job has ended.
	if j := s.job.Job; j != nil && (s.job.Alive || !slices.ContainsFunc(j.Status.Conditions, HasEnded)) {
		if err := EndJob(ctx, &r.Base, j); err != nil {
			return err
		}
		if b.Spec.DeletionPolicy == dmv1.BackupDelete {
			return outcome.WaitFor(dmv1.ReasonDeleting, "Job "+j.Name+" is being ended; set spec.deletionPolicy to Retain not to wait for it, and to leave what it wrote", outcome.RequeueSoon)
		}
	}
	begun := s.result != nil || s.job.Job != nil || b.Status.Started != nil
	owned := s.result == nil || s.result.Artifact == build.ArtifactOf(b)
	if begun && owned && b.Spec.DeletionPolicy == dmv1.BackupDelete {
		if err := r.deleteArtifact(ctx, s); err != nil && !outcome.Terminating(err) {
			return err
		}
	}
	base := b.DeepCopy()
	controllerutil.RemoveFinalizer(b, dmv1.FinalizerArtifact)
	return client.IgnoreNotFound(r.Patch(ctx, b, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}), kube.Owner))
}

// deleteArtifact returns nil once a Job has deleted the artifact.
func (r *DMBackupReconciler) deleteArtifact(ctx context.Context, s *scope) error {
	b := s.backup
	const leave = "; set spec.deletionPolicy to Retain to leave the artifact where it is"
	job, err := LookAtJob(ctx, &r.Base, b, build.DeleteJobName(b.Name))
	switch {
	case errors.Is(err, kube.ErrNameTaken):
		return fmt.Errorf("%w%s", err, leave)
	case err != nil:
		return err
	case job.Job == nil:
		if index, err := loadedFrom(ctx, &r.Base, b); err != nil {
			return err
		} else if index != "" {
			return outcome.WaitFor(dmv1.ReasonBackupInUse, "index "+index+" is loaded from the artifact, which is deleted afterwards", 0)
		}
		if err := MakeJob(ctx, &r.Base, b, build.DeleteJob(b, build.ArtifactOf(b), cmp.Or(b.Spec.Image, r.Image), deleteWithin), &b.Spec.Pod); err != nil {
			return err
		}
		return outcome.WaitFor(dmv1.ReasonDeleting, "the artifact is being deleted", 0)
	case job.Done:
		return nil
	case job.Failed == "":
		if err := EndAttempts(ctx, &r.Base, &job); err != nil {
			return err
		}
		message := "the artifact is being deleted by Job " + job.Job.Name
		if problem := cmp.Or(job.problem, storageProblem(ctx, &r.Base, b)); problem != "" {
			message += ": " + problem + leave
		}
		return outcome.WaitFor(dmv1.ReasonDeleting, message, 0)
	}
	for _, c := range job.Job.Status.Conditions {
		if r.Now().Sub(kube.Stamp(job.Job, "", c.LastTransitionTime.Time, r.Now())) > deleteAgain {
			if err := EndJob(ctx, &r.Base, job.Job); err != nil {
				return err
			}
			break
		}
	}
	return outcome.WaitFor(dmv1.ReasonDeleting, "the artifact could not be deleted, which is tried again: "+job.Failed+leave, outcome.Recheck)
}

// loadedFrom names an index that is loaded from the artifact of a backup; empty = none is. Together
// with confirmBackup it keeps an artifact from being deleted under an index that is loaded:
//
//	the index                                  the backup
//	1. writes down the backup (AnnotationRestore)   1. gets its deletionTimestamp
//	2. reads the backup at the API server           2. the indexes are read at the API server
//
// One of them sees the other: an index that sees a backup being deleted chooses anew, before it is
// made; a backup that sees an index waits until that is loaded, is loaded from another one, or is
// gone.
func loadedFrom(ctx context.Context, b *reconciler.Base, backup *dmv1.DMBackup) (string, error) {
	list := &dmv1.DMIndexList{}
	if err := b.Live.List(ctx, list, client.InNamespace(backup.Namespace)); err != nil {
		return "", err
	}
	for i := range list.Items {
		record := decision.RestoreOf(&list.Items[i])
		if record != nil && !record.Done && record.Artifact == build.ArtifactOf(backup) {
			return list.Items[i].Name, nil
		}
	}
	return "", nil
}
