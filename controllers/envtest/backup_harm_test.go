package envtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opconfig "github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// deleting is a backup that is deleted with its artifact.
var deleting = strings.Replace(backup, "indexName: demo", "indexName: demo\n  deletionPolicy: Delete", 1)

// limited is a backup whose Job has ten minutes.
var limited = strings.Replace(backup, "indexName: demo", "indexName: demo\n  timeoutSeconds: 600", 1)

// withIndex is a cluster with the index demo; it may have a clock of its own.
func withIndex(t *testing.T, now func() time.Time) *cluster {
	t.Helper()
	c := newCluster(t)
	if now != nil {
		c.now = now
	}
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	return c
}

// withClock is withIndex with a clock that a test can set.
func withClock(t *testing.T) (*cluster, *hours) {
	t.Helper()
	clock := &hours{}
	return withIndex(t, clock.now), clock
}

// withBackup is withIndex and its backup a, which is complete, and deleted with its artifact.
func withBackup(t *testing.T) *cluster {
	t.Helper()
	c := withIndex(t, nil)
	c.create(deleting, "a")
	c.attempt(c.job("a-dump"), 1, &good)
	c.end("a-dump", false)
	c.phase("a", dmv1.BackupComplete, dmv1.ReasonVerified, "")
	return c
}

// delete deletes an object.
func (c *cluster) delete(object client.Object) {
	c.t.Helper()
	if err := api.Delete(c.t.Context(), object); err != nil {
		c.t.Fatal(err)
	}
}

// noJob fails if there is a Job.
func (c *cluster) noJob(name string) {
	c.t.Helper()
	if err := c.get(name, &batchv1.Job{}); !apierrors.IsNotFound(err) {
		c.t.Errorf("Job %s: %v", name, err)
	}
}

// lookAt has a backup looked at.
func (c *cluster) lookAt(name string, at int64) {
	c.t.Helper()
	b := &dmv1.DMBackup{}
	c.patch(name, b, func() { b.Labels = map[string]string{"looked-at": fmt.Sprint(at)} })
}

// TestCopyOfABackup: what a tool copied of a DMBackup, finalizer and result included, is deleted
// without the artifact, which is another object's.
func TestCopyOfABackup(t *testing.T) {
	t.Parallel()
	c := withBackup(t)
	a := c.backup("a")
	copied := &dmv1.DMBackup{ObjectMeta: metav1.ObjectMeta{Name: "copied", Namespace: c.namespace, Annotations: a.Annotations, Finalizers: a.Finalizers}, Spec: a.Spec}
	if err := api.Create(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	c.phase("copied", dmv1.BackupComplete, dmv1.ReasonVerified, a.Status.Artifact)
	c.delete(copied)
	c.gone("copied", &dmv1.DMBackup{})
	c.noJob("copied-delete")
}

// TestBackupDeletedWhileItIsLoaded: the artifact stays until the index is loaded from it.
func TestBackupDeletedWhileItIsLoaded(t *testing.T) {
	t.Parallel()
	c := withBackup(t)
	c.create(fromBackup("a"), "new")
	job := c.restoring("new", "demo/a.")
	c.delete(c.backup("a"))
	c.phase("a", dmv1.BackupDeleting, dmv1.ReasonBackupInUse, "index new is loaded")
	c.noJob("a-delete")
	c.attempt(job, 1, &good)
	c.end("new-restore", false)
	c.available("new")
	c.end("a-delete", false)
	c.gone("a", &dmv1.DMBackup{})
}

// TestBackupDeletedBeforeItIsLoaded: an index that is not made yet does not hold a backup that is
// being deleted, and is not made from it.
func TestBackupDeletedBeforeItIsLoaded(t *testing.T) {
	t.Parallel()
	c := withBackup(t)
	c.startable.Store(false)
	c.create(fromBackup("a"), "new")
	c.eventually("the index waits for memory", func() string {
		if c.index("new").Annotations[dmv1.AnnotationRestore] == "" {
			return "it did not choose yet"
		}
		return ""
	})
	c.delete(c.backup("a"))
	c.end("a-delete", false)
	c.gone("a", &dmv1.DMBackup{})
	c.startable.Store(true)
	c.condition("new", dmv1.ConditionAvailable, metav1.ConditionFalse, dmv1.ReasonWaitingForBackup, "there is no DMBackup a")
	c.noJob("new-restore")
}

// TestBackupWhoseJobDoesNotEnd: a Job whose pod is at a dead node, or that somebody suspended, does
// not keep other backups of the index from being made.
func TestBackupWhoseJobDoesNotEnd(t *testing.T) {
	t.Parallel()
	c, clock := withClock(t)
	c.create(limited, "a")
	c.phase("a", dmv1.BackupRunning, dmv1.ReasonDumping, "")
	c.create(backup, "b")
	c.phase("b", dmv1.BackupPending, dmv1.ReasonQueued, "backup a")
	c.lookAt("a", clock.n.Add(1))
	c.phase("a", dmv1.BackupFailed, dmv1.ReasonTimedOut, "Job a-dump did not end in time")
	c.phase("b", dmv1.BackupRunning, dmv1.ReasonDumping, "")

	// Its deletion waits for the Job only if it is to delete what that wrote.
	c.delete(c.backup("a"))
	c.gone("a", &dmv1.DMBackup{})
}

// TestBackupWhoseNameIsTaken: somebody else's Job of the name does not keep others waiting for
// ever, and does not hold the backup when that is deleted.
func TestBackupWhoseNameIsTaken(t *testing.T) {
	t.Parallel()
	c, clock := withClock(t)
	c.create(backup, "theirs")
	foreign := c.job("theirs-dump").DeepCopy()
	foreign.ObjectMeta = metav1.ObjectMeta{Name: "a-dump", Namespace: c.namespace}
	foreign.Spec.Selector, foreign.Spec.Template.Labels = nil, nil
	if err := api.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	c.create(limited, "a")
	c.phase("a", dmv1.BackupPending, dmv1.ReasonNameTaken, "Job a-dump exists")
	c.lookAt("a", clock.n.Add(1))
	c.phase("a", dmv1.BackupFailed, dmv1.ReasonTimedOut, "Job a-dump exists")
	c.delete(c.backup("a"))
	c.gone("a", &dmv1.DMBackup{})
	if err := c.get("a-dump", &batchv1.Job{}); err != nil {
		t.Errorf("somebody else's Job went with the backup: %v", err)
	}
}

// TestBackupWithoutDigest: a Job that says nothing of an artifact has made none.
func TestBackupWithoutDigest(t *testing.T) {
	t.Parallel()
	c := withIndex(t, nil)
	c.create(backup, "a")
	c.attempt(c.job("a-dump"), 1, &opconfig.BackupReport{})
	c.end("a-dump", false)
	c.phase("a", dmv1.BackupFailed, dmv1.ReasonDumpFailed, "reported no digest")
}

// TestScheduleBesideABackupThatCannotBeRead: a result that somebody broke is not taken for a backup
// that is at work, and the schedule goes on.
func TestScheduleBesideABackupThatCannotBeRead(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	clock := &hours{}
	c.now = clock.now
	c.start(0)
	c.create(strings.Replace(schedule, "0 * * * *", "@hourly", 1), "hourly")
	broken := parse(t, backup, "hourly-1")
	broken.SetNamespace(c.namespace)
	broken.SetLabels(map[string]string{dmv1.LabelSchedule: "hourly"})
	text, err := json.Marshal(dmv1.BackupResult{Artifact: "a.dump", Digest: "cut off"})
	if err != nil {
		t.Fatal(err)
	}
	broken.SetAnnotations(map[string]string{dmv1.AnnotationBackup: string(text)})
	if err := api.Create(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	c.later(clock, "hourly")
	c.nth("hourly", 2)
}
