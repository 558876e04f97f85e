package backup

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
)

// TestReplaceBehind: a backup that Replace is to delete was completed before the cache knew. It
// stays.
func TestReplaceBehind(t *testing.T) {
	scheme := operatortest.Scheme(t)
	now := time.Date(2026, 3, 1, 11, 0, 30, 0, time.UTC)
	schedule := &dmv1.DMBackupSchedule{ObjectMeta: metav1.ObjectMeta{Name: "hourly", Namespace: "shop", CreationTimestamp: metav1.NewTime(now.Add(-30 * time.Minute))}}
	schedule.Spec = dmv1.DMBackupScheduleSpec{Schedule: "0 * * * *", ConcurrencyPolicy: dmv1.ConcurrencyReplace, Retention: dmv1.BackupRetention{KeepLast: 1, KeepFailed: 1}}
	backup := &dmv1.DMBackup{ObjectMeta: metav1.ObjectMeta{Name: "hourly-1", Namespace: "shop", UID: "1", Labels: map[string]string{dmv1.LabelSchedule: "hourly"}}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(schedule, backup).WithStatusSubresource(schedule, backup).Build()
	seen := &dmv1.DMBackupList{}
	if err := api.List(t.Context(), seen); err != nil {
		t.Fatal(err)
	}
	done := seen.Items[0].DeepCopy()
	done.Annotations = map[string]string{dmv1.AnnotationBackup: "{}"}
	if err := api.Update(t.Context(), done); err != nil {
		t.Fatal(err)
	}
	cache := interceptor.NewClient(api, interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
		seen.DeepCopyInto(list.(*dmv1.DMBackupList))
		return nil
	}})
	r := &DMBackupScheduleReconciler{reconciler.Base{Keeper: decision.Keeper{Writer: kube.Writer{Client: cache, Live: api}}, Now: func() time.Time { return now }, Events: &operatortest.Recorder{}}}
	if _, err := r.reconcile(t.Context(), schedule); !apierrors.IsConflict(err) {
		t.Errorf("the schedule: %v", err)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(backup), backup); err != nil {
		t.Errorf("the complete backup: %v", err)
	}
}

// TestScheduledNameIsTaken: a DMBackup that somebody else made under the name of a scheduled one is
// not taken for it.
func TestScheduledNameIsTaken(t *testing.T) {
	schedule := &dmv1.DMBackupSchedule{ObjectMeta: metav1.ObjectMeta{Name: "hourly", Namespace: "shop"}}
	backup := build.ScheduledBackup(schedule, time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC))
	foreign := backup.DeepCopy()
	foreign.Labels = nil
	for _, test := range []struct {
		there *dmv1.DMBackup
		want  error
	}{{foreign, kube.ErrNameTaken}, {backup, nil}} {
		api := fake.NewClientBuilder().WithScheme(operatortest.Scheme(t)).WithObjects(test.there.DeepCopy()).Build()
		r := &DMBackupScheduleReconciler{reconciler.Base{Keeper: decision.Keeper{Writer: kube.Writer{Client: api, Live: api}}}}
		if err := r.makeBackup(t.Context(), backup.DeepCopy()); !errors.Is(err, test.want) {
			t.Errorf("%v: %v", test.there.Labels, err)
		}
	}
}

// TestDeletedWhileNamesAreTaken: somebody else's Job under the name of a dump's holds no backup
// that is deleted. One under the name of the deletion's holds it only while the artifact is to go.
func TestDeletedWhileNamesAreTaken(t *testing.T) {
	started := metav1.NewTime(time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC))
	backup := &dmv1.DMBackup{ObjectMeta: metav1.ObjectMeta{
		Name: "a", Namespace: "shop", UID: "1", Finalizers: []string{dmv1.FinalizerArtifact}, DeletionTimestamp: &started}}
	backup.Status.Started = &started
	for _, test := range []struct {
		job    string
		policy dmv1.BackupDeletionPolicy
		held   string
	}{
		{build.DumpJobName("a"), dmv1.BackupRetain, ""},
		{build.DeleteJobName("a"), dmv1.BackupRetain, ""},
		// by a Job of its own
		{build.DumpJobName("a"), dmv1.BackupDelete, "the artifact is being deleted"},
		{build.DeleteJobName("a"), dmv1.BackupDelete, "delete it; set spec.deletionPolicy to Retain"},
	} {
		b := backup.DeepCopy()
		b.Spec.DeletionPolicy = test.policy
		foreign := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: test.job, Namespace: "shop", UID: "2"}}
		api := fake.NewClientBuilder().WithScheme(operatortest.Scheme(t)).WithObjects(b, foreign).WithStatusSubresource(b).Build()
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
			t.Fatal(err)
		}
		r := &DMBackupReconciler{reconciler.Base{Keeper: decision.Keeper{Writer: kube.Writer{Client: api, Live: api}}, Image: "server:1", Now: time.Now}}
		err := r.finalize(t.Context(), &scope{backup: b})
		switch {
		case test.held == "" && err != nil, test.held != "" && (err == nil || !strings.Contains(err.Error(), test.held)):
			t.Errorf("%s with %s: %v, want %q", test.job, test.policy, err, test.held)
		}
		if gone := apierrors.IsNotFound(api.Get(t.Context(), client.ObjectKeyFromObject(b), b)); gone != (test.held == "") {
			t.Errorf("%s with %s: the backup is gone: %v", test.job, test.policy, gone)
		}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign); err != nil {
			t.Errorf("%s with %s: somebody else's Job: %v", test.job, test.policy, err)
		}
	}
}
