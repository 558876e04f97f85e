package backup

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
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
)

// Setup adds the reconcilers of backups and their schedules. gate keeps a reconciler of a
// kind from what another operator looks after.
func Setup(mgr ctrl.Manager, b reconciler.Base, gate func(r reconcile.Reconciler, kind client.Object) reconcile.Reconciler, options func() controller.Options) error {
	backups := &DMBackupReconciler{b}
	err := ctrl.NewControllerManagedBy(mgr).For(&dmv1.DMBackupSchedule{}).WithOptions(options()).
		Watches(&dmv1.DMBackup{}, handler.EnqueueRequestsFromMapFunc(scheduleOfBackup)).
		Complete(gate(&DMBackupScheduleReconciler{b}, &dmv1.DMBackupSchedule{}))
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).For(&dmv1.DMBackup{}).WithOptions(options()).
		Owns(&batchv1.Job{}).Owns(&corev1.ConfigMap{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(backupOfPod)).
		Watches(&dmv1.DMIndex{}, handler.EnqueueRequestsFromMapFunc(backups.ofIndex), reconciler.Changed(answers)).
		Watches(&dmv1.DMBackup{}, handler.EnqueueRequestsFromMapFunc(backups.behind)).
		Complete(gate(backups, &dmv1.DMBackup{}))
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
	return []reconcile.Request{reconciler.Request(object.GetNamespace(), name)}
}

// ofIndex are the backups that may wait for an index: those of it, and the one that it is
// loaded from.
func (r *DMBackupReconciler) ofIndex(ctx context.Context, object client.Object) []reconcile.Request {
	requests := r.open(ctx, object.GetNamespace(), object.GetName())
	if index, ok := object.(*dmv1.DMIndex); ok {
		if record := decision.RestoreOf(index); record != nil {
			requests = append(requests, reconciler.Request(index.Namespace, record.Backup))
		}
	}
	return requests
}

// behind are the backups that may wait for another one, which is over.
func (r *DMBackupReconciler) behind(ctx context.Context, object client.Object) []reconcile.Request {
	backup, ok := object.(*dmv1.DMBackup)
	if !ok || !isOver(backup) {
		return nil
	}
	return r.open(ctx, backup.Namespace, backup.Spec.IndexName)
}

// open are the backups of an index that are neither complete nor failed.
func (r *DMBackupReconciler) open(ctx context.Context, namespace, index string) (requests []reconcile.Request) {
	list := &dmv1.DMBackupList{}
	if r.List(ctx, list, client.InNamespace(namespace)) != nil {
		return nil
	}
	for i := range list.Items {
		if o := &list.Items[i]; o.Spec.IndexName == index && !isOver(o) {
			requests = append(requests, reconciler.Request(o.Namespace, o.Name))
		}
	}
	return requests
}
