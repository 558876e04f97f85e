package controllers

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/kube"
)

// How long a Job may take that deletes an artifact, and after how long one that failed is replaced.
const (
	deleteWithin = 10 * time.Minute
	deleteAgain  = 5 * time.Minute
)

// finalize ends what dumps, deletes the artifact if that is wanted, then releases the backup. In a
// namespace that is being deleted nothing can be made: the artifact stays, and the backup goes.
// Whoever sets deletionPolicy to Retain meanwhile ends a deletion that cannot succeed.
func (r *DMBackupReconciler) finalize(ctx context.Context, s *backupScope) (err error) {
	b := s.backup
	if !controllerutil.ContainsFinalizer(b, dmv1.FinalizerArtifact) {
		return nil
	}
	if s.job, err = r.look(ctx, b, build.DumpJobName(b.Name)); err != nil {
		return err
	}
	if j := s.job.job; j != nil && !s.job.done && s.job.failed == "" {
		if err := r.endJob(ctx, j); err != nil {
			return err
		}
		return &waitFor{dmv1.ReasonDeleting, "Job " + j.Name + " is being ended", requeueSoon}
	}
	begun := s.result != nil || s.job.job != nil || b.Status.Started != nil
	if begun && b.Spec.DeletionPolicy == dmv1.BackupDelete {
		if err := r.deleteArtifact(ctx, s); err != nil && !terminating(err) {
			return err
		}
	}
	base := b.DeepCopy()
	controllerutil.RemoveFinalizer(b, dmv1.FinalizerArtifact)
	return client.IgnoreNotFound(r.Patch(ctx, b, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}), kube.Owner))
}

// deleteArtifact returns nil once a Job has deleted the artifact.
func (r *DMBackupReconciler) deleteArtifact(ctx context.Context, s *backupScope) error {
	b := s.backup
	job, err := r.look(ctx, b, build.DeleteJobName(b.Name))
	if err != nil {
		return err
	}
	const leave = "; set spec.deletionPolicy to Retain to leave the artifact where it is"
	switch {
	case job.job == nil:
		artifact := build.ArtifactOf(b)
		if s.result != nil {
			artifact = s.result.Artifact
		}
		if err := r.makeJob(ctx, b, build.DeleteJob(b, artifact, orElse(b.Spec.Image, r.image), deleteWithin)); err != nil {
			return err
		}
		return &waitFor{dmv1.ReasonDeleting, "the artifact is being deleted", 0}
	case job.done:
		return nil
	case job.failed == "":
		message := "the artifact is being deleted by Job " + job.job.Name
		if problem := orElse(job.problem, r.storageProblem(ctx, b)); problem != "" {
			message += ": " + problem + leave
		}
		return &waitFor{dmv1.ReasonDeleting, message, 0}
	}
	for _, c := range job.job.Status.Conditions {
		if r.now().Sub(c.LastTransitionTime.Time) > deleteAgain {
			if err := r.endJob(ctx, job.job); err != nil {
				return err
			}
			break
		}
	}
	return &waitFor{dmv1.ReasonDeleting, "the artifact could not be deleted, which is tried again: " + job.failed + leave, recheck}
}
