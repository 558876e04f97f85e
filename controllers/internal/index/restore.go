package index

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/backup"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
)

// chooseBackup writes down from which backup an index is loaded, before it is made. If the backup
// is changed while the index is loaded, the index is made anew: what was loaded must not mix with
// what follows. An index that has been loaded, or was made without a backup, is left alone.
func (r *Reconciler) chooseBackup(ctx context.Context, s *scope) error {
	from, record := s.index.Spec.Recovery.FromBackup, decision.RestoreOf(s.index)
	same := record != nil && from != nil && record.Source == *from
	switch {
	case record != nil && record.Done, same && s.index.Annotations[dmv1.AnnotationCreated] != "":
		return nil
	case same:
		return r.confirmBackup(ctx, s.index, record)
	case s.index.Annotations[dmv1.AnnotationCreated] != "" && record == nil:
		return nil
	case s.index.Annotations[dmv1.AnnotationCreated] != "":
		r.Events.Eventf(s.index, nil, corev1.EventTypeNormal, dmv1.ReasonRecreating, "Restore", "spec.recovery.fromBackup changed while the index was loaded from %s; the index starts again", record.Backup)
		if err := r.startAgain(ctx, s.index); err != nil {
			return err
		}
		return outcome.WaitFor(dmv1.ReasonRecreating, "spec.recovery.fromBackup changed while the index was loaded; the index is created again", outcome.RequeueSoon)
	case from == nil:
		return r.Annotate(ctx, s.index, map[string]string{dmv1.AnnotationRestore: ""})
	}
	backup, err := r.findBackup(ctx, s.index.Namespace, from)
	if err != nil {
		return err
	}
	result, err := decision.BackupResult(backup)
	if err != nil {
		return err
	}
	record = &decision.Restore{
		Identity: decision.Identity(s.index), Source: *from, Backup: backup.Name, Artifact: result.Artifact, Digest: result.Digest, Template: backup.Spec.BackupTemplate,
	}
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	if err := r.Annotate(ctx, s.index, map[string]string{dmv1.AnnotationRestore: string(text)}); err != nil {
		return err
	}
	return r.confirmBackup(ctx, s.index, record)
}

// confirmBackup looks, before the index is made, whether the backup that was written down is being
// deleted; then another one is chosen. A backup that is deleted later waits for the index (see
// backup.loadedFrom).
func (r *Reconciler) confirmBackup(ctx context.Context, index *dmv1.DMIndex, record *decision.Restore) error {
	b := &dmv1.DMBackup{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: index.Namespace, Name: record.Backup}, b)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil && b.DeletionTimestamp.IsZero() {
		if result, err := decision.BackupResult(b); err != nil || result != nil && result.Artifact == record.Artifact {
			return err
		}
	}
	if err := r.Annotate(ctx, index, map[string]string{dmv1.AnnotationRestore: ""}); err != nil {
		return err
	}
	return outcome.WaitFor(dmv1.ReasonWaitingForBackup, "backup "+record.Backup+" is being deleted: make another one, or correct spec.recovery.fromBackup", outcome.RequeueSoon)
}

// stillLoading returns a conflict if an index that the cache calls unloaded is loaded: the cache is
// behind, and whoever decided decides again. An index that programs use is neither closed to them
// nor loaded once more.
func stillLoading(ctx context.Context, b *reconciler.Base, index *dmv1.DMIndex) error {
	live := &dmv1.DMIndex{}
	err := b.Live.Get(ctx, client.ObjectKeyFromObject(index), live)
	if err == nil && (live.UID != index.UID || !decision.Loading(live)) {
		err = apierrors.NewConflict(dmv1.GroupVersion.WithResource("dmindexes").GroupResource(), index.Name, errors.New("it was loaded from its backup meanwhile"))
	}
	return err
}

// findBackup is the complete backup that is meant.
func (r *Reconciler) findBackup(ctx context.Context, namespace string, from *dmv1.RestoreSource) (*dmv1.DMBackup, error) {
	if from.Schedule != "" {
		list := &dmv1.DMBackupList{}
		if err := r.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{dmv1.LabelSchedule: from.Schedule}); err != nil {
			return nil, err
		}
		if b := backup.NewestComplete(list.Items); b != nil {
			return b, backup.StillHasKeys(b, list.Items)
		}
		return nil, outcome.WaitFor(dmv1.ReasonWaitingForBackup, "no backup of schedule "+from.Schedule+" is complete: make one, or name a backup in spec.recovery.fromBackup", 0)
	}
	b := &dmv1.DMBackup{}
	switch err := r.Get(ctx, types.NamespacedName{Namespace: namespace, Name: from.Name}, b); {
	case apierrors.IsNotFound(err):
		return nil, outcome.WaitFor(dmv1.ReasonWaitingForBackup, "there is no DMBackup "+from.Name+": make it, or correct spec.recovery.fromBackup", 0)
	case err != nil:
		return nil, err
	case backup.NewestComplete([]dmv1.DMBackup{*b}) == nil:
		return nil, outcome.WaitFor(dmv1.ReasonWaitingForBackup, fmt.Sprintf("backup %s is not complete, it is %s: wait for it, or name another one in spec.recovery.fromBackup", b.Name, b.Status.Phase), 0)
	}
	return b, nil
}

// loadBackup has a Job load the index from the backup that was chosen. Until that is done the index
// is not Available (see loading). The Job is repeated until it succeeds: what it does can be
// repeated, but not when the index is used. Its program says when all is loaded; Kubernetes may
// make another pod all the same, if something else in the pod failed, and that one would put old
// values over those of programs. So that all is loaded is written down first; then the Job is
// ended, unless it is complete; and the index is opened when no pod of it is there that could go
// on.
func (r *Reconciler) loadBackup(ctx context.Context, s *scope) error {
	record := decision.RestoreOf(s.index)
	if record == nil || s.view.Map == nil {
		return nil
	}
	name := build.RestoreJobName(s.index.Name)
	if record.Done {
		_, err := backup.DropJob(ctx, &r.Base, s.index, name)
		return err
	}
	job, err := backup.LookAtJob(ctx, &r.Base, s.index, name)
	if err != nil {
		return err
	}
	wait := func(text string) error {
		return outcome.WaitFor(dmv1.ReasonRestoring, "the index is loaded from backup "+record.Backup+": "+text, outcome.RequeueSoon)
	}
	if record.Loaded {
		return r.openLoaded(ctx, s, record, &job, wait)
	}
	switch {
	case job.Job == nil:
		var endpoints []string
		for i := range s.compute {
			c := &s.compute[i]
			if is, _ := podstate.Ready(c.pod); is && !podstate.Going(c.pod) && !podstate.Leaving(c.pod) && len(endpoints) < 8 {
				endpoints = append(endpoints, build.RPC(c.pod.Name, c.pool, s.index.Namespace))
			}
		}
		if len(endpoints) == 0 {
			return wait("no compute server is ready")
		}
		if err := stillLoading(ctx, &r.Base, s.index); err != nil {
			return err
		}
		image := cmp.Or(record.Template.Image, r.Image)
		if err := backup.MakeJob(ctx, &r.Base, s.index, build.RestoreJob(s.index, record.Identity, record.Template, record.Artifact, record.Digest, image, endpoints), &record.Template.Pod); err != nil {
			return err
		}
		return wait("Job " + name + " was made")
	case job.Job.Annotations[dmv1.AnnotationIdentity] != record.Identity, job.Done && (job.Report == nil || job.Report.Digest != record.Digest):
		// of an earlier incarnation, or its report is lost
		if err := backup.EndJob(ctx, &r.Base, job.Job); err != nil {
			return err
		}
		return wait("an earlier Job is being deleted")
	case job.Failed != "":
		ended, pause := restorePause(job.Job)
		if r.Now().Sub(kube.Stamp(job.Job, "", ended, r.Now())) > pause {
			if err := backup.EndJob(ctx, &r.Base, job.Job); err != nil {
				return err
			}
		}
		return outcome.WaitFor(dmv1.ReasonRestoreFailed, fmt.Sprintf("the index could not be loaded from backup %s, which is tried again after %v: %s", record.Backup, pause, job.Failed), outcome.RequeueSoon)
	case !job.Done:
		if err := backup.EndAttempts(ctx, &r.Base, &job); err != nil {
			return err
		}
		return wait(job.Progress())
	}
	record.Loaded, record.Keys = true, uint64(job.Report.Keys)
	if err := r.writeRestore(ctx, s.index, record); err != nil {
		return err
	}
	return r.openLoaded(ctx, s, record, &job, wait)
}

// openLoaded lets programs use an index of which it is written down that it is loaded, once no pod
// of its Job can change it any more.
func (r *Reconciler) openLoaded(ctx context.Context, s *scope, record *decision.Restore, job *backup.JobState, wait func(string) error) error {
	if job.Job != nil && job.Whole && !job.Alive && !slices.ContainsFunc(job.Job.Status.Conditions, backup.HasEnded) {
		// it stays for a day, for its logs
		return wait("it is loaded; Job " + job.Job.Name + " is about to end")
	}
	if job.Job != nil && (job.Alive || !slices.ContainsFunc(job.Job.Status.Conditions, backup.HasEnded)) {
		if err := backup.EndJob(ctx, &r.Base, job.Job); err != nil {
			return err
		}
		return wait("it is loaded; Job " + job.Job.Name + " is being deleted, since its pods do not end with their program")
	}
	// Pods that lost their Job are deleted by Kubernetes, but not at once.
	pods := &corev1.PodList{}
	err := r.Live.List(ctx, pods, client.InNamespace(s.index.Namespace), client.MatchingLabels{batchv1.JobNameLabel: build.RestoreJobName(s.index.Name), dmv1.LabelManagedBy: dmv1.ManagedBy})
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return !podstate.Ended(&p) }); i >= 0 {
		p := &pods.Items[i]
		return wait(fmt.Sprintf("it is loaded; pod %s of its Job has not ended yet: if its node %s is off for good, delete that", p.Name, p.Spec.NodeName))
	}
	// The Service first: who sees that the index is Available can reach it.
	if err := r.Apply(ctx, s.index, build.ClientService(s.index)); err != nil {
		return err
	}
	record.Done = true
	if err := r.writeRestore(ctx, s.index, record); err != nil {
		return err
	}
	r.Events.Eventf(s.index, nil, corev1.EventTypeNormal, dmv1.ReasonRestored, "Restore", "the index was loaded from backup %s: %d keys, digest %.16s...", record.Backup, record.Keys, record.Digest)
	return nil
}

func (r *Reconciler) writeRestore(ctx context.Context, index *dmv1.DMIndex, record *decision.Restore) error {
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return r.Annotate(ctx, index, map[string]string{dmv1.AnnotationRestore: string(text)})
}

// A Job that failed to load an index is replaced after as long as it took, within these bounds: one
// that reads half of a large artifact each time does not do so all the time.
const (
	restoreAgain     = time.Minute
	restoreAgainLast = time.Hour
)

// restorePause is when a Job that failed ended, and how long after that another one follows.
func restorePause(job *batchv1.Job) (ended time.Time, pause time.Duration) {
	ended = backup.EndOf(job)
	return ended, min(max(ended.Sub(job.CreationTimestamp.Time), restoreAgain), restoreAgainLast).Truncate(time.Second)
}

// startAgain has an index made anew, with another identity: from here on nobody knows the old one
// any more, whatever happens in between.
func (r *Reconciler) startAgain(ctx context.Context, index *dmv1.DMIndex) error {
	return r.Annotate(ctx, index, map[string]string{
		dmv1.AnnotationIndexIncarnation: decision.NextIncarnation(index),
		dmv1.AnnotationMemory:           "",
		dmv1.AnnotationJoined:           "",
		dmv1.AnnotationCreated:          "",
	})
}
