package controllers

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/decision"
)

// setupBackups adds the reconcilers of backups and their schedules.
func (b *base) setupBackups(mgr ctrl.Manager, options func() controller.Options) error {
	err := ctrl.NewControllerManagedBy(mgr).For(&dmv1.DMBackupSchedule{}).WithOptions(options()).
		Watches(&dmv1.DMBackup{}, handler.EnqueueRequestsFromMapFunc(scheduleOfBackup)).
		Complete(gated(b, &DMBackupScheduleReconciler{*b}, &dmv1.DMBackupSchedule{}))
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).For(&dmv1.DMBackup{}).WithOptions(options()).
		Owns(&batchv1.Job{}).Owns(&corev1.ConfigMap{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(backupOfPod)).
		Watches(&dmv1.DMIndex{}, handler.EnqueueRequestsFromMapFunc(b.backupsOfIndex), changed(answers)).
		Watches(&dmv1.DMBackup{}, handler.EnqueueRequestsFromMapFunc(b.backupsBehind)).
		Complete(gated(b, &DMBackupReconciler{*b}, &dmv1.DMBackup{}))
}

// answers is what backups read of their index: whether it answers, and what it is loaded from.
func answers(index *dmv1.DMIndex) any {
	return []any{apimeta.FindStatusCondition(index.Status.Conditions, dmv1.ConditionAvailable), index.Annotations[dmv1.AnnotationRestore]}
}

// backupOfPod is the backup whose Job a pod belongs to.
func backupOfPod(_ context.Context, object client.Object) []reconcile.Request {
	name := object.GetLabels()[dmv1.LabelBackup]
	if name == "" {
		return nil
	}
	return []reconcile.Request{request(object.GetNamespace(), name)}
}

// backupsOfIndex are the backups that may wait for an index: those of it, and the one that it is
// loaded from.
func (b *base) backupsOfIndex(ctx context.Context, object client.Object) []reconcile.Request {
	requests := b.openBackups(ctx, object.GetNamespace(), object.GetName())
	if index, ok := object.(*dmv1.DMIndex); ok {
		if record := decision.RestoreOf(index); record != nil {
			requests = append(requests, request(index.Namespace, record.Backup))
		}
	}
	return requests
}

// backupsBehind are the backups that may wait for another one, which is over.
func (b *base) backupsBehind(ctx context.Context, object client.Object) []reconcile.Request {
	backup, ok := object.(*dmv1.DMBackup)
	if !ok || !backupOver(backup) {
		return nil
	}
	return b.openBackups(ctx, backup.Namespace, backup.Spec.IndexName)
}

// openBackups are the backups of an index that are neither complete nor failed.
func (b *base) openBackups(ctx context.Context, namespace, index string) (requests []reconcile.Request) {
	list := &dmv1.DMBackupList{}
	if b.List(ctx, list, client.InNamespace(namespace)) != nil {
		return nil
	}
	for i := range list.Items {
		if o := &list.Items[i]; o.Spec.IndexName == index && !backupOver(o) {
			requests = append(requests, request(o.Namespace, o.Name))
		}
	}
	return requests
}

// indexesFromBackup are the indexes that may wait for a backup.
func (b *base) indexesFromBackup(ctx context.Context, object client.Object) (requests []reconcile.Request) {
	list := &dmv1.DMIndexList{}
	if b.List(ctx, list, client.InNamespace(object.GetNamespace())) != nil {
		return nil
	}
	for i := range list.Items {
		from := list.Items[i].Spec.Recovery.FromBackup
		if from != nil && decision.Loading(&list.Items[i]) && (from.Name == object.GetName() || from.Schedule != "" && from.Schedule == object.GetLabels()[dmv1.LabelSchedule]) {
			requests = append(requests, request(object.GetNamespace(), list.Items[i].Name))
		}
	}
	return requests
}
