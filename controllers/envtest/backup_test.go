package envtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	opconfig "github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/state"
)

const backup = `
apiVersion: dmindex.io/v1alpha1
kind: DMBackup
metadata: {name: NAME, namespace: default}
spec:
  indexName: demo
  storage: {volume: {claimName: dumps, path: nightly}}
`

// job waits for a Job.
func (c *cluster) job(name string) *batchv1.Job {
	c.t.Helper()
	job := &batchv1.Job{}
	c.eventually("Job "+name, func() string {
		if err := c.get(name, job); err != nil {
			return err.Error()
		}
		if !job.DeletionTimestamp.IsZero() {
			return "it is being deleted"
		}
		return ""
	})
	return job
}

// attempt plays a pod of a Job that ends with a report; nil = with none.
func (c *cluster) attempt(job *batchv1.Job, n int, report *opconfig.BackupReport) {
	c.t.Helper()
	p := &corev1.Pod{ObjectMeta: job.Spec.Template.ObjectMeta, Spec: job.Spec.Template.Spec}
	p.Name, p.Namespace = fmt.Sprintf("%s-%d", job.Name, n), job.Namespace
	p.Labels[batchv1.JobNameLabel] = job.Name
	if err := controllerutil.SetControllerReference(job, p, api.Scheme()); err != nil {
		c.t.Fatal(err)
	}
	if err := api.Create(c.t.Context(), p); err != nil {
		c.t.Fatal(err)
	}
	message := ""
	if report != nil {
		text, err := report.Marshal()
		if err != nil {
			c.t.Fatal(err)
		}
		message = string(text)
	}
	c.podStatus(p.Name, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodSucceeded
		exit := int32(0)
		if report != nil && report.Error != "" {
			s.Phase, exit = corev1.PodFailed, 1
		}
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: dmv1.ComponentBackup, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: exit, Message: message},
		}}}
	})
}

// end plays the controller of Jobs: the Job has ended.
func (c *cluster) end(name string, failed bool) {
	c.t.Helper()
	c.eventually("end Job "+name, func() string {
		job := c.job(name)
		now := metav1.Now()
		kinds := []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete}
		job.Status.StartTime = &now
		if failed {
			kinds = []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed}
			job.Status.Failed = 3
		} else {
			job.Status.CompletionTime, job.Status.Succeeded = &now, 1
		}
		job.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
		for _, kind := range kinds {
			job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
				Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now, Reason: "Played"})
		}
		if err := api.Status().Update(c.t.Context(), job); err != nil {
			return err.Error()
		}
		return ""
	})
}

// collect plays the garbage collector: a Job that is to be deleted goes with its pods.
func (c *cluster) collect(name string) {
	c.t.Helper()
	var collected types.UID // another Job of this name may follow at once
	c.eventually("Job "+name+" is deleted", func() string {
		job := &batchv1.Job{}
		switch err := c.get(name, job); {
		case apierrors.IsNotFound(err), err == nil && collected != "" && job.UID != collected:
			return ""
		case err != nil:
			return err.Error()
		case job.DeletionTimestamp.IsZero():
			return "it is not to be deleted"
		}
		collected = job.UID
		pods := &corev1.PodList{}
		if err := api.List(c.t.Context(), pods, client.InNamespace(c.namespace), client.MatchingLabels{batchv1.JobNameLabel: name}); err != nil {
			return err.Error()
		}
		for i := range pods.Items {
			if err := api.Delete(c.t.Context(), &pods.Items[i], client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
				return err.Error()
			}
		}
		job.Finalizers = nil
		if err := api.Update(c.t.Context(), job); client.IgnoreNotFound(err) != nil {
			return err.Error()
		}
		return "it was to be deleted"
	})
}

func (c *cluster) backup(name string) *dmv1.DMBackup {
	c.t.Helper()
	b := &dmv1.DMBackup{}
	if err := c.get(name, b); err != nil {
		c.t.Fatal(err)
	}
	return b
}

// phase waits until a backup has a phase, with a reason and a message that contains something.
func (c *cluster) phase(name string, phase dmv1.BackupPhase, reason, message string) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("backup %s is %s %s %q", name, phase, reason, message), func() string {
		b := c.backup(name)
		for _, cond := range b.Status.Conditions {
			if cond.Type == dmv1.ConditionComplete && b.Status.Phase == phase && cond.Reason == reason && strings.Contains(cond.Message, message) {
				return ""
			}
		}
		return fmt.Sprintf("it is %s: %+v", b.Status.Phase, b.Status.Conditions)
	})
}

var good = opconfig.BackupReport{Keys: 7, Bytes: 1234, Digest: strings.Repeat("ab", 32)}

// TestBackup: a backup waits for its index, its Job dumps, and what the Job reported is the status,
// also after the status and the Job are gone. Then it is deleted with its artifact.
func TestBackup(t *testing.T) {
	c := newCluster(t)
	c.start(0)
	c.create(backup, "first")
	c.phase("first", dmv1.BackupPending, dmv1.ReasonIndexUnavailable, "there is no DMIndex demo")
	c.create(index, "demo")
	c.available("demo")

	job := c.job("first-dump")
	args := strings.Join(job.Spec.Template.Spec.Containers[0].Args, " ")
	artifact := fmt.Sprintf("nightly/%s/demo/first.%s.dump", c.namespace, c.backup("first").UID)
	if !strings.Contains(args, "backup create --artifact="+artifact) {
		t.Errorf("the Job is called with %s", args)
	}
	c.phase("first", dmv1.BackupRunning, dmv1.ReasonDumping, "Job first-dump")

	// Another one of the same index waits.
	c.create(backup, "second")
	c.phase("second", dmv1.BackupPending, dmv1.ReasonQueued, "backup first of the same index")

	c.attempt(job, 1, &opconfig.BackupReport{Error: "no space left on device"})
	c.phase("first", dmv1.BackupRunning, dmv1.ReasonDumping, "no space left on device")
	c.attempt(job, 2, &good)
	c.end("first-dump", false)
	c.phase("first", dmv1.BackupComplete, dmv1.ReasonVerified, "7 keys in 1234 bytes")
	b := c.backup("first")
	if identity := string(c.index("demo").UID); !strings.Contains(b.Annotations[dmv1.AnnotationBackup], `"index":"`+identity+`"`) {
		t.Errorf("the result does not say that it is of %s: %s", identity, b.Annotations[dmv1.AnnotationBackup])
	}
	if b.Status.Artifact != artifact || *b.Status.Keys != 7 || *b.Status.Bytes != 1234 || b.Status.Digest != "sha256:"+good.Digest || b.Status.Started == nil || b.Status.Finished == nil {
		t.Errorf("status %+v", b.Status)
	}
	c.job("second-dump")

	// Its status comes back, and no other Job.
	if err := api.Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	c.collect("first-dump")
	c.eventually("the status is lost", func() string {
		if err := c.get("first", b); err != nil {
			return err.Error()
		}
		b.Status = dmv1.DMBackupStatus{}
		if err := api.Status().Update(t.Context(), b); err != nil {
			return err.Error()
		}
		return ""
	})
	c.phase("first", dmv1.BackupComplete, dmv1.ReasonVerified, "7 keys")
	if err := c.get("first-dump", &batchv1.Job{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Job of a complete backup: %v", err)
	}

	c.patch("first", b, func() { b.Spec.DeletionPolicy = dmv1.BackupDelete })
	if err := api.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	args = strings.Join(c.job("first-delete").Spec.Template.Spec.Containers[0].Args, " ")
	if !strings.Contains(args, "backup delete --artifact="+artifact) || strings.Contains(args, "secret") {
		t.Errorf("the Job is called with %s", args)
	}
	c.phase("first", dmv1.BackupDeleting, dmv1.ReasonDeleting, "being deleted")
	c.end("first-delete", false)
	c.gone("first", &dmv1.DMBackup{})
}

// TestBackupWithoutReport: a Job whose report is lost is made again: its program finds the artifact
// and reads it back.
func TestBackupWithoutReport(t *testing.T) {
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.create(backup, "a")
	first := c.job("a-dump")
	c.end("a-dump", false)
	c.collect("a-dump")
	again := c.job("a-dump")
	if again.UID == first.UID {
		t.Fatal("the Job is still there")
	}
	// The index was made anew since the first Job: the artifact may be of before.
	b := c.backup("a")
	identity := b.Annotations[dmv1.AnnotationIdentity]
	earlier := map[string]string{dmv1.AnnotationIdentity: "earlier"}
	earlier[dmv1.AnnotationState] = state.Stamp(string(b.UID), 9, earlier)
	c.patch("a", b, func() { b.SetAnnotations(earlier) })
	c.attempt(again, 1, &good)
	c.end("a-dump", false)
	c.phase("a", dmv1.BackupComplete, dmv1.ReasonVerified, "")
	if result := c.backup("a").Annotations[dmv1.AnnotationBackup]; identity == "" || !strings.Contains(result, `"index":"earlier or `+identity+`"`) {
		t.Errorf("the result does not say that it is of either: %s", result)
	}
}

// TestBackupFails: the Job's last error is the backup's, which stays failed; and it goes without
// its artifact being looked for, unless that is wanted.
func TestBackupFails(t *testing.T) {
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.create(backup, "a")
	job := c.job("a-dump")
	c.attempt(job, 1, &opconfig.BackupReport{Error: "write a: no space left on device"})
	c.end("a-dump", true)
	c.phase("a", dmv1.BackupFailed, dmv1.ReasonDumpFailed, "no space left on device")
	if b := c.backup("a"); b.Status.Artifact != "" || b.Status.Digest != "" {
		t.Errorf("a failed backup has artifact %q, digest %q", b.Status.Artifact, b.Status.Digest)
	}
	if err := api.Delete(t.Context(), c.backup("a")); err != nil {
		t.Fatal(err)
	}
	c.gone("a", &dmv1.DMBackup{})
}

// TestBackupDeletedWhileItRuns: the Job ends before its artifact is deleted, and an artifact that
// cannot be deleted is left if somebody says so.
func TestBackupDeletedWhileItRuns(t *testing.T) {
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.create(strings.Replace(backup, "indexName: demo", "indexName: demo\n  deletionPolicy: Delete", 1), "a")
	c.phase("a", dmv1.BackupRunning, dmv1.ReasonDumping, "")
	if err := api.Delete(t.Context(), c.backup("a")); err != nil {
		t.Fatal(err)
	}
	c.phase("a", dmv1.BackupDeleting, dmv1.ReasonDeleting, "a-dump is being ended")
	if err := c.get("a-delete", &batchv1.Job{}); !apierrors.IsNotFound(err) {
		t.Errorf("the artifact is being deleted while it is written: %v", err)
	}
	c.collect("a-dump")
	job := c.job("a-delete")
	c.attempt(job, 1, &opconfig.BackupReport{Error: "read-only file system"})
	c.end("a-delete", true)
	c.phase("a", dmv1.BackupDeleting, dmv1.ReasonDeleting, "read-only file system; set spec.deletionPolicy to Retain")
	b := &dmv1.DMBackup{}
	c.patch("a", b, func() { b.Spec.DeletionPolicy = dmv1.BackupRetain })
	c.gone("a", &dmv1.DMBackup{})
}

// TestBackupTimesOut: nothing waits for ever.
func TestBackupTimesOut(t *testing.T) {
	c := newCluster(t)
	c.now = func() time.Time { return time.Now().Add(time.Hour) }
	c.start(0)
	c.create(strings.Replace(backup, "indexName: demo", "indexName: demo\n  timeoutSeconds: 600", 1), "a")
	c.phase("a", dmv1.BackupFailed, dmv1.ReasonTimedOut, "there is no DMIndex demo")
}

// TestBackupOfAnotherCluster: a DMBackup that is made with the result of another one is complete,
// and does not own the artifact.
func TestBackupOfAnotherCluster(t *testing.T) {
	c := newCluster(t)
	c.start(0)
	result, err := json.Marshal(dmv1.BackupResult{Artifact: "elsewhere/a.dump", Keys: 3, Bytes: 4, Digest: good.Digest, Started: metav1.Now(), Finished: metav1.Now()})
	if err != nil {
		t.Fatal(err)
	}
	b := parse(t, strings.Replace(backup, "indexName: demo", "indexName: demo\n  deletionPolicy: Delete", 1), "a")
	b.SetNamespace(c.namespace)
	b.SetAnnotations(map[string]string{dmv1.AnnotationBackup: string(result)})
	if err := api.Create(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	c.phase("a", dmv1.BackupComplete, dmv1.ReasonVerified, "elsewhere/a.dump")
	if err := api.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	c.gone("a", &dmv1.DMBackup{})
}

// TestBackupsRefused: wrong backups are refused, with a sentence that says what to write.
func TestBackupsRefused(t *testing.T) {
	n := 0
	f := func(old, new, want string) {
		t.Helper()
		n++
		err := api.Create(t.Context(), parse(t, strings.Replace(backup, old, new, 1), fmt.Sprintf("wrong-%d", n)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s -> %s: %v; want %q", old, new, err, want)
		}
	}
	f("{volume: {claimName: dumps, path: nightly}}", "{}", "write exactly one of volume and s3")
	f("{volume: {claimName: dumps, path: nightly}}", "{s3: {endpoint: s3.example.com, bucket: dumps, credentialsSecret: {name: a}}}", "should match")
	f("{volume: {claimName: dumps, path: nightly}}", "{s3: {endpoint: 'https://s3.example.com', bucket: dumps}}", "credentialsSecret: Required")
	f("path: nightly", "path: ../other", "path must not have . or ..")
	f("path: nightly", "path: /nightly", "should match")
	f("name: NAME", "name: "+strings.Repeat("a", 53), "at most 52 characters")
	f("indexName: demo", "indexName: demo\n  timeoutSeconds: 1", "greater than or equal to 60")
	f("indexName: demo", "indexName: demo\n  deletionPolicy: Keep", `supported values: "Retain", "Delete"`)

	b := parse(t, backup, "unchanged")
	if err := api.Create(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	defer func() {
		b.SetFinalizers(nil)
		if err := api.Delete(t.Context(), b); err != nil {
			t.Error(err)
		}
	}()
	for _, patch := range []string{`{"spec":{"indexName":"other"}}`, `{"spec":{"storage":{"volume":{"path":"other"}}}}`} {
		err := api.Patch(t.Context(), parse(t, backup, "unchanged"), client.RawPatch("application/merge-patch+json", []byte(patch)))
		if err == nil || !strings.Contains(err.Error(), "make a new DMBackup") {
			t.Errorf("%s: %v", patch, err)
		}
	}
}
