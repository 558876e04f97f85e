package controllers

import (
	"context"
	"encoding/json"
	"errors"
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
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/report"
	"github.com/dmindex/dmindex/pkg/partition"
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

// meshed is a pod of a Job with a proxy that a mesh put in, after the program ended with a code.
func meshed(t *testing.T, job *batchv1.Job, name string, code int32, phase corev1.PodPhase, report *config.BackupReport) corev1.Pod {
	t.Helper()
	text, err := report.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	p := corev1.Pod{ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy()}
	p.Name, p.Namespace, p.Labels[batchv1.JobNameLabel] = name, job.Namespace, job.Name
	p.Status.Phase = phase
	proxy := corev1.ContainerStatus{Name: "istio-proxy", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	if phase != corev1.PodRunning {
		proxy.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 143}}
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{proxy, {Name: dmv1.ComponentBackup, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: string(text)}}}}
	return p
}

var goodReport = &config.BackupReport{Keys: 7, Bytes: 100, Digest: strings.Repeat("ab", 32)}

// TestDumpBesideAProxy: a dump whose program ended is complete, whatever else is in its pod; then
// its Job, which would never end, is ended.
func TestDumpBesideAProxy(t *testing.T) {
	for name, phase := range map[string]corev1.PodPhase{"the proxy runs on": corev1.PodRunning, "the proxy failed": corev1.PodFailed} {
		d := newDumping(t, func(job *batchv1.Job) []corev1.Pod {
			pods := []corev1.Pod{meshed(t, job, "a-dump-1", 0, phase, goodReport)}
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
		pod = meshed(t, job, "a-dump-1", 1, corev1.PodRunning, &config.BackupReport{Error: "the volume is full"})
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

// TestOpenedAfterTheLastPod: an index that is loaded is opened when no pod of its Job can put old
// values over those of programs any more: Kubernetes makes another one when a mesh's proxy failed
// beside the program that succeeded.
func TestOpenedAfterTheLastPod(t *testing.T) {
	index := &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "shop", UID: "9"}}
	record := &decision.Restore{Identity: "9", Backup: "a", Artifact: "a.dump", Digest: goodReport.Digest}
	text, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	job := build.RestoreJob(index, "9", dmv1.BackupTemplate{}, "a.dump", goodReport.Digest, "server:1", []string{"x:1"})
	job.UID = "2"
	first := meshed(t, job, "demo-restore-1", 0, corev1.PodFailed, goodReport)
	second := corev1.Pod{ObjectMeta: *first.ObjectMeta.DeepCopy()}
	second.Name, second.Status.Phase = "demo-restore-2", corev1.PodRunning
	for _, err := range []error{
		controllerutil.SetControllerReference(index, job, operatortest.Scheme(t)), controllerutil.SetControllerReference(job, &first, operatortest.Scheme(t)), controllerutil.SetControllerReference(job, &second, operatortest.Scheme(t)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	api := fake.NewClientBuilder().WithScheme(operatortest.Scheme(t)).WithObjects(index, job, &first, &second).Build()
	r := &DMIndexReconciler{Base: reconciler.Base{Keeper: decision.Keeper{Writer: kube.Writer{Client: api, Live: api}}, Now: time.Now, Events: &operatortest.Recorder{}, Logged: report.NewLogged()}}
	if err := r.Keep(t.Context(), index); err != nil {
		t.Fatal(err)
	}
	if err := r.Annotate(t.Context(), index, map[string]string{dmv1.AnnotationRestore: string(text), dmv1.AnnotationCreated: "true"}); err != nil {
		t.Fatal(err)
	}
	load := func() *decision.Restore {
		t.Helper()
		s := &indexScope{index: &dmv1.DMIndex{}}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(index), s.index); err != nil {
			t.Fatal(err)
		}
		if err := r.Keep(t.Context(), s.index); err != nil {
			t.Fatal(err)
		}
		s.view.Map = &partition.Map{}
		var wait *outcome.Wait
		if err := r.loadBackup(t.Context(), s); err != nil && !errors.As(err, &wait) {
			t.Fatal(err)
		}
		return decision.RestoreOf(s.index)
	}
	if is := load(); !is.Loaded || is.Done || is.Keys != 7 {
		t.Errorf("while the second attempt runs: %+v", is)
	}
	if api.Get(t.Context(), client.ObjectKeyFromObject(job), job) == nil {
		t.Error("the Job goes on")
	}
	if is := load(); is.Done {
		t.Error("it is opened while a pod that lost its Job runs")
	}
	if err := api.Delete(t.Context(), &second); err != nil {
		t.Fatal(err)
	}
	if is := load(); !is.Done {
		t.Errorf("when the pods have ended: %+v", is)
	}
}

// TestLoadedJobStays: a Job whose pod has succeeded as a whole is waited for, and keeps its logs.
func TestLoadedJobStays(t *testing.T) {
	index := &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "shop"}}
	job := build.RestoreJob(index, "9", dmv1.BackupTemplate{}, "a.dump", goodReport.Digest, "server:1", nil)
	job.UID = "2"
	pod := meshed(t, job, "demo-restore-1", 0, corev1.PodSucceeded, goodReport)
	pod.OwnerReferences = []metav1.OwnerReference{{UID: job.UID}}
	state := judgeJob(job, []corev1.Pod{pod})
	// a deletion would need a client, which there is none
	var wait *outcome.Wait
	err := new(DMIndexReconciler).openLoaded(t.Context(), &indexScope{index: index}, &decision.Restore{}, &state, func(text string) error { return outcome.WaitFor(dmv1.ReasonRestoring, text, 0) })
	if !errors.As(err, &wait) || !strings.Contains(wait.Message, "about to end") {
		t.Errorf("a Job that is about to be complete: %v", err)
	}
}
