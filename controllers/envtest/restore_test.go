package envtest

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	opconfig "github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// fromBackup is a DMIndex that is loaded from a backup.
func fromBackup(name string) string {
	return strings.Replace(index, "durability: Memory", "durability: Memory\n  recovery: {onDataLoss: Recreate, fromBackup: {name: "+name+"}}", 1)
}

// leads reports whether the Service of an index leads to its compute servers.
func (c *cluster) leads(name string) bool {
	c.t.Helper()
	s := &corev1.Service{}
	if err := c.get(name, s); err != nil {
		c.t.Fatal(err)
	}
	_, closed := s.Spec.Selector[dmv1.LabelLoaded]
	return !closed
}

// dumped makes a backup of demo that is complete, with a digest of its own.
func (c *cluster) dumped(name, digit string) opconfig.BackupReport {
	c.t.Helper()
	c.create(backup, name)
	report := opconfig.BackupReport{Keys: 7, Bytes: 1234, Digest: strings.Repeat(digit, 64)}
	c.attempt(c.job(name+"-dump"), 1, &report)
	c.end(name+"-dump", false)
	c.phase(name, dmv1.BackupComplete, dmv1.ReasonVerified, "")
	return report
}

// restoring waits for the Job that loads an index, whose arguments contain something.
func (c *cluster) restoring(name, argument string) *batchv1.Job {
	c.t.Helper()
	var job *batchv1.Job
	c.eventually("Job "+name+"-restore with "+argument, func() string {
		job = c.job(name + "-restore")
		if args := strings.Join(job.Spec.Template.Spec.Containers[0].Args, " "); !strings.Contains(args, argument) {
			return args
		}
		return ""
	})
	return job
}

// TestFromBackup: a new index waits for its backup, is loaded from it before anybody reaches it,
// and is loaded anew after a loss of data; it is left alone otherwise.
func TestFromBackup(t *testing.T) {
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.create(fromBackup("first"), "new")
	c.condition("new", dmv1.ConditionAvailable, metav1.ConditionFalse, dmv1.ReasonWaitingForBackup, "there is no DMBackup first")
	report := c.dumped("first", "a")

	job := c.restoring("new", "backup restore --artifact=nightly/"+c.namespace+"/demo/first.")
	args := strings.Join(job.Spec.Template.Spec.Containers[0].Args, " ")
	if !strings.Contains(args, "--digest="+report.Digest) || !strings.Contains(args, "--endpoint=new-compute-") {
		t.Errorf("the Job is called with %s", args)
	}
	c.condition("new", dmv1.ConditionAvailable, metav1.ConditionFalse, dmv1.ReasonRestoring, "backup first")
	if c.leads("new") {
		t.Error("the Service of an index that is not loaded leads to it")
	}
	c.attempt(job, 1, &opconfig.BackupReport{Error: "the connection was cut"})
	c.condition("new", dmv1.ConditionAvailable, metav1.ConditionFalse, dmv1.ReasonRestoring, "the connection was cut")
	c.attempt(job, 2, &report)
	c.end("new-restore", false)
	c.available("new")
	if !c.leads("new") {
		t.Error("the Service of an index that is loaded leads nowhere")
	}

	// Another backup is for the next time.
	c.dumped("second", "b")
	i := &dmv1.DMIndex{}
	c.patch("new", i, func() { i.Spec.Recovery.FromBackup.Name = "second" })
	c.eventually("the change is seen", func() string {
		if i := c.index("new"); i.Status.ObservedGeneration != i.Generation {
			return "not yet"
		}
		return ""
	})
	c.available("new")
	identity := c.index("new").Status.Identity

	victim := c.pods("new-memory")[1]
	c.deletePod(victim)
	c.collect("new-restore") // of the first time
	again := c.restoring("new", "demo/second.")
	if now := c.index("new").Status.Identity; now == identity || again.Annotations[dmv1.AnnotationIdentity] != now {
		t.Errorf("the index is %s, was %s; the Job is of %s", now, identity, again.Annotations[dmv1.AnnotationIdentity])
	}
	c.condition("new", dmv1.ConditionAvailable, metav1.ConditionFalse, dmv1.ReasonRestoring, "backup second")
	if c.leads("new") {
		t.Error("the Service of an index that is loaded anew leads to it")
	}
	c.attempt(again, 3, &opconfig.BackupReport{Keys: 7, Bytes: 1234, Digest: strings.Repeat("b", 64)})
	c.end("new-restore", false)
	c.available("new")
}

// TestFromAnotherBackup: a restore that fails is said to have failed, and another backup begins
// with an index made anew, so that no index has keys of two.
func TestFromAnotherBackup(t *testing.T) {
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.dumped("damaged", "a")
	c.dumped("sound", "b")
	c.create(fromBackup("damaged"), "new")
	job := c.restoring("new", "demo/damaged.")
	identity := c.index("new").Status.Identity
	c.attempt(job, 1, &opconfig.BackupReport{Error: "dump is damaged: it ends too early"})
	c.end("new-restore", true)
	c.condition("new", dmv1.ConditionAvailable, metav1.ConditionFalse, dmv1.ReasonRestoring, "it ends too early")
	c.condition("new", dmv1.ConditionProgressing, metav1.ConditionTrue, dmv1.ReasonRestoreFailed, "it ends too early")

	i := &dmv1.DMIndex{}
	c.patch("new", i, func() { i.Spec.Recovery.FromBackup.Name = "sound" })
	c.collect("new-restore")
	job = c.restoring("new", "demo/sound.")
	if now := c.index("new").Status.Identity; now == identity {
		t.Errorf("the index is still %s", now)
	}
	c.attempt(job, 2, &opconfig.BackupReport{Keys: 7, Bytes: 1234, Digest: strings.Repeat("b", 64)})
	c.end("new-restore", false)
	c.available("new")
}

// TestFromBackupIsForNewIndexes: an index that has keys is never loaded.
func TestFromBackupIsForNewIndexes(t *testing.T) {
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.dumped("first", "a")
	i := &dmv1.DMIndex{}
	c.patch("demo", i, func() { i.Spec.Recovery.FromBackup = &dmv1.RestoreSource{Name: "first"} })
	c.eventually("the change is seen", func() string {
		if i := c.index("demo"); i.Status.ObservedGeneration != i.Generation {
			return "not yet"
		}
		return ""
	})
	c.available("demo")
	if err := c.get("demo-restore", &batchv1.Job{}); err == nil || !c.leads("demo") {
		t.Errorf("an index that was there is loaded: %v", err)
	}
	c.patch("demo", i, func() { i.Spec.Recovery.FromBackup = nil })
	wrong := strings.Replace(index, "durability: Memory", "durability: Memory\n  recovery: {fromBackup: {}}", 1)
	if err := api.Create(t.Context(), parse(t, wrong, "wrong")); err == nil || !strings.Contains(err.Error(), "write exactly one of name") {
		t.Errorf("neither name nor schedule: %v", err)
	}
}
