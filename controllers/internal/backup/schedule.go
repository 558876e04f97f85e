package backup

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/report"
)

// +kubebuilder:rbac:groups=dmindex.io,resources=dmbackups,verbs=create;delete
// +kubebuilder:rbac:groups=dmindex.io,resources=dmbackupschedules,verbs=get;list;watch
// +kubebuilder:rbac:groups=dmindex.io,resources=dmbackupschedules/status,verbs=patch

// DMBackupScheduleReconciler reconciles DMBackupSchedule: it makes a DMBackup for each time, and
// deletes those that retention does not keep. A backup is named after its schedule and its time, so
// that none is made twice, whoever died in between. Backups do not go with their schedule.
type DMBackupScheduleReconciler struct{ reconciler.Base }

// Reconcile makes one schedule true.
func (r *DMBackupScheduleReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	schedule := &dmv1.DMBackupSchedule{}
	if err := r.Get(ctx, request.NamespacedName, schedule); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !schedule.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	before := schedule.Status.DeepCopy()
	next, err := r.reconcile(ctx, schedule)
	if outcome.Passing(err) {
		return outcome.Result(err)
	}
	if err != nil {
		reason, message := outcome.Explain(err)
		report.SetCondition(&schedule.Status.Conditions, schedule.Generation, dmv1.ConditionScheduled, false, reason, message)
	} else {
		schedule.Status.ObservedGeneration = schedule.Generation
	}
	if err := kube.ApplyStatus(ctx, &r.Writer, schedule, before, &schedule.Status); err != nil {
		return ctrl.Result{}, err
	}
	if err != nil {
		return outcome.Result(err)
	}
	return ctrl.Result{RequeueAfter: next}, nil
}

// longestLook is how long a schedule is not looked at, at most: backups also get old.
const longestLook = 10 * time.Minute

func (r *DMBackupScheduleReconciler) reconcile(ctx context.Context, schedule *dmv1.DMBackupSchedule) (time.Duration, error) {
	times, err := parseSchedule(&schedule.Spec)
	if err == nil && times.Next(r.Now()).IsZero() {
		err = fmt.Errorf("schedule %q: there is no such time within five years", schedule.Spec.Schedule)
	}
	if err != nil {
		return 0, outcome.WaitFor(dmv1.ReasonBadSchedule, err.Error(), longestLook)
	}
	list := &dmv1.DMBackupList{}
	if err := r.List(ctx, list, client.InNamespace(schedule.Namespace), client.MatchingLabels{dmv1.LabelSchedule: schedule.Name}); err != nil {
		return 0, err
	}
	status := &schedule.Status
	v := scheduleView{spec: &schedule.Spec, times: times, now: r.Now(), spread: spreadOf(schedule)}
	known := []time.Time{schedule.CreationTimestamp.Time}
	if t := status.LastScheduleTime; t != nil {
		known = append(known, t.Time)
	}
	for i := range list.Items {
		b := scheduled(&list.Items[i])
		v.backups = append(v.backups, b)
		known = append(known, b.at) // also if the status was lost
	}
	if v.since = newestTime(v.now, known...); v.since.IsZero() {
		v.since = v.now // the schedule was made later than now
	}
	a := decideSchedule(v)
	if !a.run.IsZero() {
		// Made before anything is deleted, so that Replace and retention leave no time without one.
		if err := r.makeBackup(ctx, build.ScheduledBackup(schedule, a.run)); err != nil {
			return 0, err
		}
		status.LastScheduleTime = ptr.To(metav1.NewTime(a.run))
	} else if !a.missed.IsZero() {
		status.LastScheduleTime = ptr.To(metav1.NewTime(a.missed))
		if a.reason == dmv1.ReasonMissed {
			r.Events.Eventf(schedule, nil, corev1.EventTypeWarning, a.reason, "Schedule", "%s", a.message)
		}
	}
	for i := range list.Items {
		if b := &list.Items[i]; slices.Contains(a.remove, b.Name) {
			// As it was seen: one that Replace deletes may be complete by now, and the only one.
			err := r.Delete(ctx, b, client.Preconditions{UID: &b.UID, ResourceVersion: &b.ResourceVersion})
			if client.IgnoreNotFound(err) != nil {
				return 0, err
			}
		}
	}
	r.summarize(schedule, list.Items, v, a)
	next := longestLook
	if !a.next.IsZero() {
		next = min(next, max(a.next.Sub(v.now), 0)+time.Second)
	}
	return next, nil
}

// makeBackup makes a backup of a schedule, unless it was made before.
func (r *DMBackupScheduleReconciler) makeBackup(ctx context.Context, backup *dmv1.DMBackup) error {
	err := r.Create(ctx, backup, kube.Owner)
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			err = fmt.Errorf("make DMBackup %s: %w", backup.Name, err)
		}
		return err
	}
	live := &dmv1.DMBackup{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(backup), live); err != nil {
		return err
	}
	if of := live.Labels[dmv1.LabelSchedule]; of != backup.Labels[dmv1.LabelSchedule] {
		return fmt.Errorf("%w: DMBackup %s exists and is not of this schedule: delete it", kube.ErrNameTaken, backup.Name)
	}
	return nil
}

// scheduled is what counts of a backup of a schedule.
func scheduled(b *dmv1.DMBackup) scheduledBackup {
	s := scheduledBackup{name: b.Name, index: b.Spec.IndexName, at: b.CreationTimestamp.Time, begun: b.CreationTimestamp.Time, failed: hasFailed(b), going: !b.DeletionTimestamp.IsZero()}
	if t, err := time.Parse(time.RFC3339, b.Annotations[dmv1.AnnotationScheduled]); err == nil {
		s.at = t
	}
	result, err := decision.BackupResult(b)
	s.complete, s.broken = err == nil && result != nil, err != nil
	if s.complete {
		s.copied = result.Artifact != build.ArtifactOf(b)
		s.begun, s.identity, s.keys = result.Started.Time, result.Index, result.Keys
	}
	return s
}

func (r *DMBackupScheduleReconciler) summarize(schedule *dmv1.DMBackupSchedule, backups []dmv1.DMBackup, v scheduleView, a scheduleActions) {
	status := &schedule.Status
	status.NextScheduleTime, status.LastComplete, status.LastCompleteTime, status.Complete, status.Active = nil, "", nil, 0, nil
	if !schedule.Spec.Suspend {
		status.NextScheduleTime = ptr.To(metav1.NewTime(v.next()))
	}
	sorted := byAge(v.backups)
	last := newestOf(sorted, schedule.Spec.Template.IndexName)
	for i, b := range v.backups {
		switch {
		case b.active() && len(status.Active) < 16:
			status.Active = append(status.Active, b.name)
		case b.complete && !b.going:
			status.Complete++
			if result, err := decision.BackupResult(&backups[i]); err == nil && last != nil && b.name == last.name {
				status.LastComplete, status.LastCompleteTime = b.name, &result.Finished
			}
		}
	}
	slices.Sort(status.Active)
	r.judgeKeys(schedule, sorted, last)
	report.SetCondition(&status.Conditions, schedule.Generation, dmv1.ConditionScheduled, a.reason == dmv1.ReasonScheduled, a.reason, a.message)
}

// judgeKeys sets the condition KeysCollapsed by the newest backup of the index, if there is one.
// The newest come first.
func (r *DMBackupScheduleReconciler) judgeKeys(schedule *dmv1.DMBackupSchedule, newest []scheduledBackup, last *scheduledBackup) {
	conditions := &schedule.Status.Conditions
	if last == nil {
		apimeta.RemoveStatusCondition(conditions, dmv1.ConditionKeysCollapsed)
		return
	}
	from := collapsedFrom(newest, last.index)
	if from == nil {
		report.SetCondition(conditions, schedule.Generation, dmv1.ConditionKeysCollapsed, false, dmv1.ReasonKeysAsBefore, "")
		return
	}
	message := fmt.Sprintf("backup %s has %d keys, and backup %s before it %d: load the index from %s if data was lost; it is kept until it is deleted or the keys are back", last.name, last.keys, from.name, from.keys, from.name)
	if !apimeta.IsStatusConditionTrue(*conditions, dmv1.ConditionKeysCollapsed) {
		r.Events.Eventf(schedule, nil, corev1.EventTypeWarning, dmv1.ReasonFewerKeys, "Judge", "%s", message)
	}
	report.SetCondition(conditions, schedule.Generation, dmv1.ConditionKeysCollapsed, true, dmv1.ReasonFewerKeys, message)
}

// scheduleOfBackup is the schedule that made a backup.
func scheduleOfBackup(_ context.Context, object client.Object) []reconcile.Request {
	name := object.GetLabels()[dmv1.LabelSchedule]
	if name == "" {
		return nil
	}
	return []reconcile.Request{reconciler.Request(object.GetNamespace(), name)}
}
