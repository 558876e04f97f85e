// Package backup makes backups of indexes. A DMBackup is dumped once, by a Job, and keeps its
// result for good; a DMBackupSchedule makes DMBackups, and deletes what nobody is to keep. The Jobs
// that load an index from a backup are run by the index, with what is here of Jobs.
package backup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/report"
)

// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=create;delete;get;list;watch
// +kubebuilder:rbac:groups=dmindex.io,resources=dmbackups,verbs=get;list;patch;watch
// +kubebuilder:rbac:groups=dmindex.io,resources=dmbackups/finalizers,verbs=update
// +kubebuilder:rbac:groups=dmindex.io,resources=dmbackups/status,verbs=patch

// DMBackupReconciler reconciles DMBackup. A backup goes through its phases once: it waits for its
// index, a Job dumps that, and the result is written down for good (AnnotationBackup). See
// docs/design/backup.md.
type DMBackupReconciler struct{ reconciler.Base }

// scope is what was gathered about one backup.
type scope struct {
	backup *dmv1.DMBackup
	result *dmv1.BackupResult // nil = it is not complete
	job    JobState
	failed string // why it failed, just now
	reason string // of the failure
	again  time.Duration
}

// Reconcile makes one backup true.
func (r *DMBackupReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	s := &scope{backup: &dmv1.DMBackup{}}
	if err := r.Get(ctx, request.NamespacedName, s.backup); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := s.backup.Status.DeepCopy()
	going := !s.backup.DeletionTimestamp.IsZero()
	var err error
	if !going {
		err = r.Keep(ctx, s.backup)
	}
	if err == nil {
		s.result, err = decision.BackupResult(s.backup)
	}
	switch {
	case going:
		if err = r.finalize(ctx, s); err == nil {
			return ctrl.Result{}, nil
		}
	case err != nil:
	case s.result != nil && s.result.Artifact != build.ArtifactOf(s.backup):
		// a copy, which owns no artifact
	default:
		if err = r.holdBackup(ctx, s.backup); err == nil && s.result == nil && !hasFailed(s.backup) {
			err = r.dump(ctx, s)
		}
	}
	if err == nil && (s.result != nil || hasFailed(s.backup)) {
		s.again, err = DropJob(ctx, &r.Base, s.backup, build.DumpJobName(s.backup.Name))
	}
	return r.finish(ctx, s, before, err)
}

func (r *DMBackupReconciler) finish(ctx context.Context, s *scope, before *dmv1.DMBackupStatus, err error) (ctrl.Result, error) {
	if outcome.Passing(err) {
		return outcome.Result(err)
	}
	s.summarize(err, r.Now())
	if now := s.backup.Status.Phase; now != before.Phase {
		switch c := apimeta.FindStatusCondition(s.backup.Status.Conditions, dmv1.ConditionComplete); now {
		case dmv1.BackupComplete:
			r.Events.Eventf(s.backup, nil, corev1.EventTypeNormal, c.Reason, "Dump", "%s", c.Message)
		case dmv1.BackupFailed:
			r.Events.Eventf(s.backup, nil, corev1.EventTypeWarning, c.Reason, "Dump", "%s", c.Message)
		}
	}
	if err := kube.ApplyStatus(ctx, &r.Writer, s.backup, before, &s.backup.Status); err != nil {
		return ctrl.Result{}, err
	}
	if err == nil {
		return ctrl.Result{RequeueAfter: s.again}, nil // it is what it will be
	}
	return outcome.Result(err)
}

// hasFailed reports whether a backup has failed for good.
func hasFailed(b *dmv1.DMBackup) bool {
	c := apimeta.FindStatusCondition(b.Status.Conditions, dmv1.ConditionFailed)
	return c != nil && c.Status == metav1.ConditionTrue
}

// isOver reports whether nothing more happens to a backup.
func isOver(b *dmv1.DMBackup) bool {
	return b.Annotations[dmv1.AnnotationBackup] != "" || hasFailed(b) || !b.DeletionTimestamp.IsZero()
}

// endsWithin is how much later than its deadline a Job must have ended. Its controller ends it by
// itself, but not before its pods have ended, and never while it is suspended.
const endsWithin = 5 * time.Minute

// holdBackup adds the finalizer of a backup that has an artifact, or is to have one: also again,
// after somebody replaced the object.
func (r *DMBackupReconciler) holdBackup(ctx context.Context, b *dmv1.DMBackup) error {
	if controllerutil.ContainsFinalizer(b, dmv1.FinalizerArtifact) {
		return nil
	}
	base := b.DeepCopy()
	controllerutil.AddFinalizer(b, dmv1.FinalizerArtifact)
	return r.Patch(ctx, b, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}), kube.Owner)
}

// dump brings a backup a step further.
func (r *DMBackupReconciler) dump(ctx context.Context, s *scope) (err error) {
	b := s.backup
	left := time.Duration(b.Spec.TimeoutSeconds)*time.Second - r.Now().Sub(b.CreationTimestamp.Time)
	if s.job, err = LookAtJob(ctx, &r.Base, b, build.DumpJobName(b.Name)); err != nil {
		if errors.Is(err, kube.ErrNameTaken) && left <= 0 {
			s.failed, s.reason = err.Error(), dmv1.ReasonTimedOut
			return nil
		}
		return err
	}
	switch {
	case s.job.over(), left > -endsWithin:
	case s.job.Job != nil:
		// Its pod is at a node that does not answer, or somebody suspended it: it does not end by
		// itself, and others wait for it.
		if err := EndJob(ctx, &r.Base, s.job.Job); err != nil {
			return err
		}
		s.failed, s.reason = "Job "+s.job.Job.Name+" did not end in time: "+cmp.Or(s.job.problem, "see its pod "+cmp.Or(s.job.pod, "and whether the Job is suspended")), dmv1.ReasonTimedOut
		return nil
	}
	switch {
	case s.job.Job == nil:
		index, why := r.waitsFor(ctx, b)
		if why == nil {
			if left <= 0 {
				s.failed, s.reason = "it was not begun in time: there was no Job", dmv1.ReasonTimedOut
				return nil
			}
			if b.Annotations[dmv1.AnnotationIdentity] == "" {
				if err := r.Annotate(ctx, b, map[string]string{dmv1.AnnotationIdentity: decision.Identity(index)}); err != nil {
					return err
				}
			}
			if err := MakeJob(ctx, &r.Base, b, build.DumpJob(b, cmp.Or(b.Spec.Image, r.Image), left), &b.Spec.Pod); err != nil {
				return err
			}
			return outcome.WaitFor(dmv1.ReasonDumping, "Job "+build.DumpJobName(b.Name)+" was made", 0)
		}
		wait, halted := why.(*outcome.Wait)
		if halted && left <= 0 {
			s.failed, s.reason = wait.Message, dmv1.ReasonTimedOut
			return nil
		}
		if halted {
			wait.After = min(max(left, time.Second), outcome.Recheck)
		}
		return why
	case s.job.Done && s.job.Report == nil:
		// Its pod is gone, and what it said with it. The next one finds the artifact and reads it
		// back.
		if err := EndJob(ctx, &r.Base, s.job.Job); err != nil {
			return err
		}
		return outcome.WaitFor(dmv1.ReasonDumping, "the report of Job "+s.job.Job.Name+" is lost: another one reads the artifact back", outcome.RequeueSoon)
	case s.job.Done && len(s.job.Report.Digest) != 64:
		s.failed, s.reason = "Job "+s.job.Job.Name+" reported no digest: is its image one of dmindex?", dmv1.ReasonDumpFailed
		return nil
	case s.job.Done:
		return r.record(ctx, s)
	case s.job.Failed != "":
		s.failed, s.reason = s.job.Failed, dmv1.ReasonDumpFailed
		return nil
	case !s.job.Job.DeletionTimestamp.IsZero():
		return outcome.WaitFor(dmv1.ReasonDumping, "Job "+s.job.Job.Name+" is being deleted; another one follows", outcome.RequeueSoon)
	}
	if err := EndAttempts(ctx, &r.Base, &s.job); err != nil {
		return err
	}
	return outcome.WaitFor(dmv1.ReasonDumping, s.job.Progress(), s.job.again())
}

// record writes down what a Job that succeeded reported. From then on the backup is complete.
func (r *DMBackupReconciler) record(ctx context.Context, s *scope) error {
	report := s.job.Report
	identity, err := r.dumped(ctx, s.backup)
	if err != nil {
		return err
	}
	result := &dmv1.BackupResult{
		Index: identity, Artifact: build.ArtifactOf(s.backup), Keys: int64(report.Keys), Bytes: report.Bytes, Digest: report.Digest,
		Started: s.job.Job.CreationTimestamp, Finished: metav1.NewTime(r.Now().UTC().Truncate(time.Second)),
	}
	if t := s.job.Job.Status.CompletionTime; t != nil {
		result.Finished = *t
	}
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	if err := r.Annotate(ctx, s.backup, map[string]string{dmv1.AnnotationBackup: string(text)}); err != nil {
		return err
	}
	s.result = result
	return nil
}

// dumped says which incarnation of the index was dumped. It is that for which the first Job was
// made, if the index is still that: identities never come back. Else a Job may have dumped either,
// and retention takes the backup for neither. The API server is asked: a cache that is behind would
// hide that the index was made anew. Empty = an earlier operator made the Job, and did not say.
func (r *DMBackupReconciler) dumped(ctx context.Context, b *dmv1.DMBackup) (string, error) {
	begun := b.Annotations[dmv1.AnnotationIdentity]
	index := &dmv1.DMIndex{}
	switch err := r.Live.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: b.Spec.IndexName}, index); {
	case apierrors.IsNotFound(err) && begun != "":
		return begun + " or a later one", nil
	case client.IgnoreNotFound(err) != nil:
		return "", err
	case begun == "" || begun == decision.Identity(index):
		return begun, nil
	}
	return begun + " or " + decision.Identity(index), nil
}

// waitsFor says what a backup that has not begun waits for; nil = nothing, and the index is
// returned.
func (r *DMBackupReconciler) waitsFor(ctx context.Context, b *dmv1.DMBackup) (*dmv1.DMIndex, error) {
	index := &dmv1.DMIndex{}
	switch err := r.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: b.Spec.IndexName}, index); {
	case apierrors.IsNotFound(err):
		return nil, outcome.WaitFor(dmv1.ReasonIndexUnavailable, "there is no DMIndex "+b.Spec.IndexName, 0)
	case err != nil:
		return nil, err
	}
	if c := apimeta.FindStatusCondition(index.Status.Conditions, dmv1.ConditionAvailable); c == nil || c.Status != metav1.ConditionTrue || !index.DeletionTimestamp.IsZero() {
		message := "index " + index.Name + " does not answer requests"
		if c != nil {
			message += ": " + c.Message
		}
		return nil, outcome.WaitFor(dmv1.ReasonIndexUnavailable, message, 0)
	}
	if problem := storageProblem(ctx, &r.Base, b); problem != "" {
		return nil, outcome.WaitFor(dmv1.ReasonSecretMissing, problem, 0)
	}
	list := &dmv1.DMBackupList{}
	if err := r.List(ctx, list, client.InNamespace(b.Namespace)); err != nil {
		return nil, err
	}
	if other := ahead(b, list.Items); other != "" {
		return nil, outcome.WaitFor(dmv1.ReasonQueued, fmt.Sprintf("backup %s of the same index goes first", other), 0)
	}
	return index, nil
}

// storageProblem says what the Secrets of a backup's storage lack; empty = nothing, or the operator
// may not read them. A pod without its Secret would wait, and only an event would say for what.
func storageProblem(ctx context.Context, b *reconciler.Base, backup *dmv1.DMBackup) string {
	problem := ""
	if s3 := backup.Spec.Storage.S3; s3 != nil {
		problem = secretProblem(ctx, b, backup.Namespace, s3.CredentialsSecret.Name, config.S3AccessKey, config.S3SecretKey)
	}
	if e := backup.Spec.Storage.EncryptionSecret; e != nil && problem == "" {
		problem = secretProblem(ctx, b, backup.Namespace, e.Name, config.BackupIdentities)
	}
	return problem
}

// secretProblem says what a Secret lacks of its keys.
func secretProblem(ctx context.Context, b *reconciler.Base, namespace, name string, keys ...string) string {
	secret := &corev1.Secret{}
	err := b.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return fmt.Sprintf("there is no Secret %s: make it, with %s", name, strings.Join(keys, " and "))
	}
	for _, key := range keys {
		if err == nil && len(secret.Data[key]) == 0 {
			return fmt.Sprintf("Secret %s has no %s: add it", secret.Name, key)
		}
	}
	return ""
}

// ahead names the backup of the same index that goes before b: the oldest that is neither complete
// nor failed. Empty = none. A backup whose index is dumped already waits: two would take twice as
// long each.
func ahead(b *dmv1.DMBackup, all []dmv1.DMBackup) string {
	waiting := slices.DeleteFunc(slices.Clone(all), func(o dmv1.DMBackup) bool {
		return o.Spec.IndexName != b.Spec.IndexName || isOver(&o) || o.UID == b.UID
	})
	for i := range waiting {
		o := &waiting[i]
		at := o.CreationTimestamp.Compare(b.CreationTimestamp.Time)
		if o.Status.Started != nil || at < 0 || at == 0 && o.Name < b.Name {
			return o.Name
		}
	}
	return ""
}

// summarize writes what was found into the backup's status. err is what it waits for.
func (s *scope) summarize(err error, now time.Time) {
	b, status := s.backup, &s.backup.Status
	set := func(kind string, is bool, reason, message string) {
		report.SetCondition(&status.Conditions, b.Generation, kind, is, reason, message)
	}
	status.ObservedGeneration = b.Generation
	if s.job.Job != nil && status.Started == nil {
		status.Started = s.job.Job.CreationTimestamp.DeepCopy()
	}
	reason, message := outcome.Explain(err)
	if s.result != nil {
		status.Artifact, status.Digest = s.result.Artifact, "sha256:"+s.result.Digest
		status.Keys, status.Bytes = ptr.To(s.result.Keys), ptr.To(s.result.Bytes)
		status.Started, status.Finished = s.result.Started.DeepCopy(), s.result.Finished.DeepCopy()
	}
	switch {
	case !b.DeletionTimestamp.IsZero():
		status.Phase = dmv1.BackupDeleting
		set(dmv1.ConditionComplete, false, reason, message)
	case s.result != nil:
		status.Phase = dmv1.BackupComplete
		set(dmv1.ConditionComplete, true, dmv1.ReasonVerified, fmt.Sprintf("%d keys in %d bytes were read back from %s", s.result.Keys, s.result.Bytes, s.result.Artifact))
		set(dmv1.ConditionFailed, false, dmv1.ReasonNotFailed, "")
	case s.failed != "":
		status.Phase, status.Finished = dmv1.BackupFailed, ptr.To(metav1.NewTime(now.UTC().Truncate(time.Second)))
		set(dmv1.ConditionComplete, false, s.reason, s.failed)
		set(dmv1.ConditionFailed, true, s.reason, s.failed)
	case err == nil, hasFailed(b): // it failed before, and stays so
	default:
		status.Phase = dmv1.BackupPending
		if s.job.Job != nil {
			status.Phase = dmv1.BackupRunning
		}
		set(dmv1.ConditionComplete, false, reason, message)
		set(dmv1.ConditionFailed, false, dmv1.ReasonNotFailed, "")
	}
}
