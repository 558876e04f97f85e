package backup

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/report"
)

// TestLookBehind: a Job is known to have succeeded before the end of its pod is. Its report is not
// lost.
func TestLookBehind(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	owner := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "nightly", Namespace: "shop", UID: "1"}}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "nightly-dump", Namespace: "shop", UID: "2"}}
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "nightly-dump-1", Namespace: "shop", Labels: map[string]string{batchv1.JobNameLabel: job.Name, dmv1.LabelManagedBy: dmv1.ManagedBy}}}
	if err := controllerutil.SetControllerReference(owner, job, scheme); err != nil {
		t.Fatal(err)
	}
	if err := controllerutil.SetControllerReference(job, pod, scheme); err != nil {
		t.Fatal(err)
	}
	running := pod.DeepCopy()
	running.Status.Phase = corev1.PodRunning
	text, err := (&config.BackupReport{Keys: 7, Digest: "a"}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = corev1.PodSucceeded
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: dmv1.ComponentBackup, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Message: string(text)}}}}

	cache := fake.NewClientBuilder().WithScheme(scheme).WithObjects(job, running).Build()
	live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(job, pod).Build()
	b := reconciler.Base{Keeper: decision.Keeper{Writer: kube.Writer{Client: cache, Live: live}}}
	s, err := LookAtJob(t.Context(), &b, owner, job.Name)
	if err != nil || !s.Done || s.Report == nil || s.Report.Keys != 7 {
		t.Errorf("the Job is %+v, %v", s, err)
	}
}

// TestPodOfADeadNode: a Job that waits for a pod at a node that is cut off says so.
func TestPodOfADeadNode(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "demo-restore", UID: "2"}}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "demo-restore-1", OwnerReferences: []metav1.OwnerReference{{UID: "2"}}}}
	pod.Spec.NodeName, pod.Status.Phase = "node3", corev1.PodRunning
	if s := JudgeJob(job, []corev1.Pod{pod}); s.problem != "" {
		t.Errorf("a pod that runs: %q", s.problem)
	}
	pod.DeletionTimestamp = &metav1.Time{}
	if s := JudgeJob(job, []corev1.Pod{pod}); !strings.Contains(s.problem, "node node3 does not say") {
		t.Errorf("a pod that does not end: %q", s.problem)
	}
	pod.Status.Phase = corev1.PodFailed
	if s := JudgeJob(job, []corev1.Pod{pod}); strings.Contains(s.problem, "node3") {
		t.Errorf("a pod that ended: %q", s.problem)
	}
}

// TestJobsThatAreOver: the Job of a backup that is over goes a day after it ended, and nobody
// else's.
func TestJobsThatAreOver(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	f := func(name string, failed, foreign bool, ended, again time.Duration, stays bool) {
		t.Helper()
		backup := &dmv1.DMBackup{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "shop", UID: "1", Finalizers: []string{dmv1.FinalizerArtifact}}}
		if failed {
			report.SetCondition(&backup.Status.Conditions, 0, dmv1.ConditionFailed, true, dmv1.ReasonDumpFailed, "")
		} else {
			text, err := json.Marshal(dmv1.BackupResult{Artifact: build.ArtifactOf(backup), Digest: strings.Repeat("ab", 32)})
			if err != nil {
				t.Fatal(err)
			}
			backup.Annotations = map[string]string{dmv1.AnnotationBackup: string(text)}
		}
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: build.DumpJobName("a"), Namespace: "shop", UID: "2", CreationTimestamp: metav1.NewTime(now.Add(-48 * time.Hour))}}
		job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-ended))}}
		if !foreign {
			if err := controllerutil.SetControllerReference(backup, job, operatortest.Scheme(t)); err != nil {
				t.Fatal(err)
			}
		}
		api := fake.NewClientBuilder().WithScheme(operatortest.Scheme(t)).WithObjects(backup, job).WithStatusSubresource(backup).Build()
		r := &DMBackupReconciler{reconciler.Base{Keeper: decision.Keeper{Writer: kube.Writer{Client: api, Live: api}}, Now: func() time.Time { return now }, Events: &operatortest.Recorder{}}}
		result, err := r.Reconcile(t.Context(), reconciler.Request("shop", "a"))
		if err != nil || result.RequeueAfter != again {
			t.Errorf("%s: %+v, %v; want another look after %v", name, result, err, again)
		}
		if there := api.Get(t.Context(), client.ObjectKeyFromObject(job), job) == nil; there != stays {
			t.Errorf("%s: the Job is there: %v", name, there)
		}
	}
	f("complete", false, false, 23*time.Hour, time.Hour, true)
	f("complete for long", false, false, 25*time.Hour, 0, false)
	f("failed", true, false, time.Hour, 23*time.Hour, true)
	f("failed for long", true, false, 25*time.Hour, 0, false)
	f("somebody else's", false, true, 25*time.Hour, 0, true)
}

// TestFailedBackupStaysFailed: whatever cannot be done for a backup that has failed does not make
// it one that waits, and is dumped again.
func TestFailedBackupStaysFailed(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	backup := &dmv1.DMBackup{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "shop", UID: "1", Finalizers: []string{dmv1.FinalizerArtifact}}}
	report.SetCondition(&backup.Status.Conditions, 0, dmv1.ConditionFailed, true, dmv1.ReasonDumpFailed, "no space")
	backup.Status.Phase = dmv1.BackupFailed
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: build.DumpJobName("a"), Namespace: "shop", UID: "2", CreationTimestamp: metav1.NewTime(now.Add(-48 * time.Hour))}}
	if err := controllerutil.SetControllerReference(backup, job, operatortest.Scheme(t)); err != nil {
		t.Fatal(err)
	}
	busy := errors.New("the API server is busy")
	api := fake.NewClientBuilder().WithScheme(operatortest.Scheme(t)).WithObjects(backup, job).WithStatusSubresource(backup).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return busy },
	}).Build()
	r := &DMBackupReconciler{reconciler.Base{Keeper: decision.Keeper{Writer: kube.Writer{Client: api, Live: api}}, Now: func() time.Time { return now }, Events: &operatortest.Recorder{}}}
	if _, err := r.Reconcile(t.Context(), reconciler.Request("shop", "a")); !errors.Is(err, busy) {
		t.Errorf("the Job cannot be deleted: %v", err)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(backup), backup); err != nil {
		t.Fatal(err)
	}
	if c := apimeta.FindStatusCondition(backup.Status.Conditions, dmv1.ConditionFailed); !hasFailed(backup) || c.Reason != dmv1.ReasonDumpFailed || backup.Status.Phase != dmv1.BackupFailed {
		t.Errorf("the backup is %s: %+v", backup.Status.Phase, c)
	}
}
