package index

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/backup"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/report"
	"github.com/dmindex/dmindex/pkg/partition"
)

// TestOpenedAfterTheLastPod: an index that is loaded is opened when no pod of its Job can put old
// values over those of programs any more: Kubernetes makes another one when a mesh's proxy failed
// beside the program that succeeded.
func TestOpenedAfterTheLastPod(t *testing.T) {
	index := &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "shop", UID: "9"}}
	record := &decision.Restore{Identity: "9", Backup: "a", Artifact: "a.dump", Digest: operatortest.GoodReport.Digest}
	text, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	job := build.RestoreJob(index, "9", dmv1.BackupTemplate{}, "a.dump", operatortest.GoodReport.Digest, "server:1", []string{"x:1"})
	job.UID = "2"
	first := operatortest.Meshed(t, job, "demo-restore-1", 0, corev1.PodFailed, operatortest.GoodReport)
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
	r := &Reconciler{Base: reconciler.Base{Keeper: decision.Keeper{Writer: kube.Writer{Client: api, Live: api}}, Now: time.Now, Events: &operatortest.Recorder{}, Logged: report.NewLogged()}}
	if err := r.Keep(t.Context(), index); err != nil {
		t.Fatal(err)
	}
	if err := r.Annotate(t.Context(), index, map[string]string{dmv1.AnnotationRestore: string(text), dmv1.AnnotationCreated: "true"}); err != nil {
		t.Fatal(err)
	}
	load := func() *decision.Restore {
		t.Helper()
		s := &scope{index: &dmv1.DMIndex{}}
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
	job := build.RestoreJob(index, "9", dmv1.BackupTemplate{}, "a.dump", operatortest.GoodReport.Digest, "server:1", nil)
	job.UID = "2"
	pod := operatortest.Meshed(t, job, "demo-restore-1", 0, corev1.PodSucceeded, operatortest.GoodReport)
	pod.OwnerReferences = []metav1.OwnerReference{{UID: job.UID}}
	state := backup.JudgeJob(job, []corev1.Pod{pod})
	// a deletion would need a client, which there is none
	var wait *outcome.Wait
	err := new(Reconciler).openLoaded(t.Context(), &scope{index: index}, &decision.Restore{}, &state, func(text string) error { return outcome.WaitFor(dmv1.ReasonRestoring, text, 0) })
	if !errors.As(err, &wait) || !strings.Contains(wait.Message, "about to end") {
		t.Errorf("a Job that is about to be complete: %v", err)
	}
}

// TestLoadedMeanwhile: the cache does not know yet that an index was loaded from its backup, and
// its Job is gone. The index is neither loaded once more, over what programs wrote, nor closed to
// them.
func TestLoadedMeanwhile(t *testing.T) {
	scheme := operatortest.Scheme(t)
	index := &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "shop", UID: "1"}}
	index.Spec.Recovery.FromBackup = &dmv1.RestoreSource{Name: "nightly"}
	record := func(done bool) *dmv1.DMIndex {
		text, err := json.Marshal(decision.Restore{Identity: decision.Identity(index), Source: *index.Spec.Recovery.FromBackup, Backup: "nightly", Artifact: "a.dump", Done: done})
		if err != nil {
			t.Fatal(err)
		}
		i := index.DeepCopy()
		i.Annotations = map[string]string{dmv1.AnnotationRestore: string(text), dmv1.AnnotationCreated: "true"}
		return i
	}
	service := build.ClientService(index)
	for name, test := range map[string]struct {
		live *dmv1.DMIndex
		want bool
	}{"loaded": {record(true), false}, "not loaded": {record(false), true}} {
		stale := record(false)
		stale.ResourceVersion, test.live.ResourceVersion = "", ""
		cache := fake.NewClientBuilder().WithScheme(scheme).WithObjects(stale, service.DeepCopy()).Build()
		live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(test.live).Build()
		r := &Reconciler{Base: reconciler.Base{Keeper: decision.Keeper{Writer: kube.Writer{Client: cache, Live: live}}, Image: "server:1", Now: time.Now}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "demo-compute-0", Namespace: "shop"}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		s := &scope{index: stale, compute: []computeServer{{pod: pod, pool: "demo-compute"}}}
		s.view.Map = &partition.Map{}
		err := r.loadBackup(t.Context(), s)
		made := cache.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: build.RestoreJobName("demo")}, &batchv1.Job{}) == nil
		if made != test.want || apierrors.IsConflict(err) == test.want {
			t.Errorf("%s: a Job was made: %v (%v)", name, made, err)
		}
		if err := r.ensureService(t.Context(), s); apierrors.IsConflict(err) == test.want {
			t.Errorf("%s: the Service: %v", name, err)
		}
	}
}
