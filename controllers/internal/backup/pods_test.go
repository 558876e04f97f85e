package backup

import (
	"context"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// dumping is a backup whose Job is at work in one pod, in the namespace shop.
type dumping struct {
	t      *testing.T
	api    client.Client
	r      *DMBackupReconciler
	now    time.Time
	backup *dmv1.DMBackup
	job    *batchv1.Job
}

func newDumping(t *testing.T, pods func(job *batchv1.Job) []corev1.Pod, create func(client.Object) error) *dumping {
	t.Helper()
	d := &dumping{t: t, now: time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)}
	d.backup = &dmv1.DMBackup{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "shop", UID: "1", CreationTimestamp: metav1.NewTime(d.now.Add(-time.Minute)),
		Finalizers: []string{dmv1.FinalizerArtifact}, Annotations: map[string]string{dmv1.AnnotationIdentity: "x"}}}
	d.backup.Spec.IndexName, d.backup.Spec.TimeoutSeconds = "demo", 21600
	d.job = build.DumpJob(d.backup, "server:1", time.Hour)
	d.job.UID, d.job.CreationTimestamp = "2", metav1.NewTime(d.now.Add(-30*time.Second))
	if err := controllerutil.SetControllerReference(d.backup, d.job, operatortest.Scheme(t)); err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{d.backup, d.job}
	for _, p := range pods(d.job) {
		if err := controllerutil.SetControllerReference(d.job, &p, operatortest.Scheme(t)); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, &p)
	}
	d.api = fake.NewClientBuilder().WithScheme(operatortest.Scheme(t)).WithObjects(objects...).WithStatusSubresource(d.backup).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if _, is := o.(*corev1.Pod); is {
				if len((&client.CreateOptions{}).ApplyOptions(options).DryRun) == 0 {
					t.Error("a pod of a Job is made by the operator")
				}
				return create(o)
			}
			return c.Create(ctx, o, options...)
		},
	}).Build()
	d.r = &DMBackupReconciler{reconciler.Base{Keeper: decision.Keeper{Writer: kube.Writer{Client: d.api, Live: d.api}}, Now: func() time.Time { return d.now }, Events: &operatortest.Recorder{}, Logged: report.NewLogged()}}
	return d
}

// look reconciles the backup, and returns what it says of itself.
func (d *dumping) look() (dmv1.BackupPhase, string) {
	d.t.Helper()
	if _, err := d.r.Reconcile(d.t.Context(), reconciler.Request("shop", "a")); err != nil {
		d.t.Fatal(err)
	}
	if err := d.api.Get(d.t.Context(), client.ObjectKeyFromObject(d.backup), d.backup); err != nil {
		d.t.Fatal(err)
	}
	return d.backup.Status.Phase, apimeta.FindStatusCondition(d.backup.Status.Conditions, dmv1.ConditionComplete).Message
}

func (d *dumping) there(o client.Object) bool {
	return d.api.Get(d.t.Context(), client.ObjectKeyFromObject(o), o) == nil
}

// TestDumpBesideAProxy: a dump whose program ended is complete, whatever else is in its pod; then
// its Job, which would never end, is ended.
func TestDumpBesideAProxy(t *testing.T) {
	for name, phase := range map[string]corev1.PodPhase{"the proxy runs on": corev1.PodRunning, "the proxy failed": corev1.PodFailed} {
		d := newDumping(t, func(job *batchv1.Job) []corev1.Pod {
			pods := []corev1.Pod{operatortest.Meshed(t, job, "a-dump-1", 0, phase, operatortest.GoodReport)}
			if phase == corev1.PodFailed {
				job.Status.Failed = 1
				next := corev1.Pod{ObjectMeta: *pods[0].ObjectMeta.DeepCopy()}
				next.Name, next.Status.Phase = "a-dump-2", corev1.PodRunning
				pods = append(pods, next)
			}
			return pods
		}, nil)
		if phase, message := d.look(); phase != dmv1.BackupComplete || !strings.Contains(message, "7 keys") {
			t.Errorf("%s: the backup is %s: %s", name, phase, message)
		}
		d.look()
		if d.there(d.job) {
			t.Errorf("%s: the Job goes on for ever", name)
		}
	}
}

// TestDumpFailsBesideAProxy: a pod whose program failed is deleted, so that the next attempt
// follows.
func TestDumpFailsBesideAProxy(t *testing.T) {
	pod := corev1.Pod{}
	d := newDumping(t, func(job *batchv1.Job) []corev1.Pod {
		pod = operatortest.Meshed(t, job, "a-dump-1", 1, corev1.PodRunning, &config.BackupReport{Error: "the volume is full"})
		return []corev1.Pod{pod}
	}, nil)
	if phase, message := d.look(); phase != dmv1.BackupRunning || !strings.Contains(message, "the volume is full") {
		t.Errorf("the backup is %s: %s", phase, message)
	}
	if d.there(&pod) || !d.there(d.job) {
		t.Error("the pod goes on, or its Job does not")
	}
}

// TestDumpWithoutAPod: a Job whose pod cannot be made says so, and why, and not that it is at work.
func TestDumpWithoutAPod(t *testing.T) {
	none := func(*batchv1.Job) []corev1.Pod { return nil }
	quota := apierrors.NewForbidden(corev1.Resource("pods"), "a-dump-x", decision.ErrNoRecord)
	f := func(name, want string, change func(*dumping), create error) {
		t.Helper()
		d := newDumping(t, none, func(client.Object) error { return create })
		if change != nil {
			change(d)
			if err := d.api.Update(t.Context(), d.job); err != nil {
				t.Fatal(err)
			}
		}
		if _, message := d.look(); !strings.Contains(message, want) || strings.Contains(message, "at work") {
			t.Errorf("%s: %s; want %s", name, message, want)
		}
	}
	f("a quota", "waits for a pod: it has no pod, since none can be made: pods \"a-dump-x\" is forbidden", nil, quota)
	f("nobody knows", "waits for a pod: it has no pod: see its events (kubectl describe job a-dump)", func(d *dumping) { d.now = d.now.Add(time.Minute) }, nil)
	f("suspended", "waits for a pod: the Job is suspended", func(d *dumping) { d.job.Spec.Suspend = new(bool); *d.job.Spec.Suspend = true }, nil)
	f("too early", "Job a-dump waits for a pod", func(d *dumping) { d.now = d.job.CreationTimestamp.Add(time.Second) }, quota)
}
