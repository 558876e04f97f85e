package envtest

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
)

// replaced makes an object what its manifest says, as `kubectl replace` and Argo CD's Replace=true
// do: without what others wrote into its metadata.
func (c *cluster) replaced(name string, object client.Object) {
	c.t.Helper()
	c.patch(name, object, func() { bare(object) })
}

func bare(object client.Object) {
	object.SetAnnotations(nil)
	object.SetLabels(nil)
	object.SetFinalizers(nil)
	object.SetOwnerReferences(nil)
}

// record is the record of an object.
func (c *cluster) record(of client.Object) *corev1.ConfigMap {
	c.t.Helper()
	m := &corev1.ConfigMap{}
	c.eventually("the record of "+of.GetName(), func() string {
		if err := c.get(build.StateRecordName(of.GetUID()), m); err != nil {
			return err.Error()
		}
		return ""
	})
	return m
}

// state is what the two witnesses of an object say.
func (c *cluster) state(of client.Object) string {
	annotations := map[string]string{}
	for key, value := range of.GetAnnotations() {
		if strings.HasPrefix(key, "dmindex.io/") && key != dmv1.AnnotationApplied {
			annotations[strings.TrimPrefix(key, "dmindex.io/")] = value
		}
	}
	return fmt.Sprint(annotations, "\n", c.record(of).Data)
}

// restored waits until both witnesses of an index say what they said, and the operator has looked
// at it since.
func (c *cluster) restored(what, name, want string) {
	c.t.Helper()
	c.equal(what+": both witnesses", want, func() any { return c.state(c.index(name)) })
	c.lookAgain(name)
	c.equal(what+": both witnesses, later", want, func() any { return c.state(c.index(name)) })
}

// seenBefore has a pool look as one that an operator of an earlier version looked at.
func (c *cluster) seenBefore(pool string) {
	c.t.Helper()
	p := c.memoryPool(pool)
	p.Status.Conditions = []metav1.Condition{{Type: dmv1.ConditionPoolReady, Status: metav1.ConditionFalse, Reason: dmv1.ReasonServersStarting, LastTransitionTime: metav1.Now()}}
	if err := api.Status().Update(c.t.Context(), p); err != nil {
		c.t.Fatal(err)
	}
}

// deleteRecord deletes the record of an object.
func (c *cluster) deleteRecord(of client.Object) { c.t.Helper(); c.delete(c.record(of)) }

// TestWhereStateLives: whoever replaces, strips, exports, edits or deletes what the operator wrote
// down of an index that was made anew once, and is full of data, has it written again, and nothing
// else happens: nothing is taken back, made anew or said to be lost.
func TestWhereStateLives(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(strings.Replace(index, "spec:", "spec:\n  recovery: {onDataLoss: Recreate}", 1), "demo")
	c.available("demo")
	exported, uid := c.index("demo"), string(c.index("demo").UID)
	c.deletePod("demo-memory-1")
	c.equal("identity, and a map", uid+"/1 true", func() any {
		return fmt.Sprint(c.index("demo").Status.Identity, " ", c.index("demo").Status.Map != nil)
	})
	c.available("demo")
	c.lookAgain("demo")
	survivor := string(c.pod("demo-memory-0").UID)
	c.fleet.Use(survivor, uid+"/1", 60)
	calls, want := len(c.fleet.Changes()), c.state(c.index("demo"))

	i, m := &dmv1.DMIndex{}, &corev1.ConfigMap{}
	edit := func(f func()) {
		name := build.StateRecordName(c.index("demo").UID)
		c.patch(name, m, f)
	}
	for what, do := range map[string]func(){
		"replaced":               func() { c.replaced("demo", i) },
		"replaced, status too":   func() { c.replaced("demo", i); c.noStatus("demo") },
		"an old manifest":        func() { c.patch("demo", i, func() { maps.Copy(i.Annotations, exported.Annotations) }) },
		"an old one replaces it": func() { c.patch("demo", i, func() { i.Annotations = exported.Annotations }) },
		"an edited annotation":   func() { c.patch("demo", i, func() { i.Annotations[dmv1.AnnotationMemory] = `{"1":1}` }) },
		"one that is dropped":    func() { c.patch("demo", i, func() { delete(i.Annotations, dmv1.AnnotationCreated) }) },
		"record deleted":         func() { c.deleteRecord(c.index("demo")) },
		"record emptied":         func() { edit(func() { m.Data = nil }) },
		"record edited":          func() { edit(func() { m.Data["memory"] = `{"1":1}` }) },
		"another pod's number": func() {
			p := &corev1.Pod{}
			c.patch("demo-memory-0", p, func() { p.Labels[dmv1.LabelServerID] = "7" })
		},
		"record without owner": func() { edit(func() { m.OwnerReferences, m.Labels = nil, nil }) },
	} {
		do()
		c.restored(what, "demo", want)
	}
	c.equal("owner and labels of the record", "demo state", func() any {
		m := c.record(c.index("demo"))
		if len(m.OwnerReferences) != 1 {
			return m.OwnerReferences
		}
		return m.OwnerReferences[0].Name + " " + m.Labels[dmv1.LabelComponent]
	})
	for name, pool := range map[string]client.Object{"demo-memory": &dmv1.DMMemoryPool{}, "demo-compute": &dmv1.DMComputePool{}} {
		if err := c.get(name, pool); err != nil {
			t.Fatal(err)
		}
		before := c.state(pool)
		c.patch(name, pool, func() { pool.SetAnnotations(nil); pool.SetFinalizers(nil) })
		c.equal("state of pool "+name, before, func() any {
			if err := c.get(name, pool); err != nil {
				return err
			}
			return c.state(pool)
		})
	}
	c.available("demo")
	// Both at once, while nobody looks: what is in force then is older than what the servers hold.
	kept := c.index("demo").Annotations
	c.stop()
	c.deleteRecord(c.index("demo"))
	c.patch("demo", i, func() { i.Annotations = maps.Clone(exported.Annotations) })
	c.start(0)
	c.condition("demo", dmv1.ConditionDegraded, metav1.ConditionTrue, dmv1.ReasonStateConflict, "holds "+uid+"/1")
	c.condition("demo", dmv1.ConditionAvailable, metav1.ConditionTrue, "", "") // its servers go on
	c.patch("demo", i, func() { i.Annotations = maps.Clone(kept) })
	c.restored("the newest annotations are put back", "demo", want)
	c.condition("demo", dmv1.ConditionDegraded, metav1.ConditionFalse, "", "")
	for _, call := range c.fleet.Changes()[calls:] {
		if !strings.HasPrefix(call, "swap") {
			t.Errorf("a call: %s", call)
		}
	}
	if has := c.fleet.Admitted(survivor); len(has) != 1 || has[uid+"/1"] == 0 {
		t.Errorf("memory server 0 has %v", has)
	}
	if now := c.index("demo").Status.Identity; now != uid+"/1" {
		t.Errorf("the index is %s now", now)
	}
}

// noStatus drops the status of an index.
func (c *cluster) noStatus(name string) {
	c.t.Helper()
	c.eventually("drop the status", func() string {
		i := c.index(name)
		i.Status = dmv1.DMIndexStatus{}
		if err := api.Status().Update(c.t.Context(), i); err != nil {
			return err.Error()
		}
		return ""
	})
}

// TestReplacedAllTheTime: an index comes up, and none of it is made twice, while somebody replaces
// it and its pools all the time, with bare manifests and with those that were exported before.
func TestReplacedAllTheTime(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan int)
	go func() {
		replaced, exported := 0, map[string][]map[string]string{}
		tick := time.NewTicker(15 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ctx.Err() == nil; n++ {
			for name, object := range map[string]client.Object{"demo": &dmv1.DMIndex{}, "demo-memory": &dmv1.DMMemoryPool{}, "demo-compute": &dmv1.DMComputePool{}} {
				if api.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, object) != nil {
					continue
				}
				exported[name] = append(exported[name], object.GetAnnotations())
				object.SetAnnotations(nil)
				if n%3 == 0 {
					object.SetAnnotations(exported[name][n%len(exported[name])])
				}
				if api.Update(ctx, object) == nil {
					replaced++
				}
			}
			<-tick.C
		}
		done <- replaced
	}()
	c.eventually("pods and a map", func() string {
		if i := c.index("demo"); i.Status.Map != nil && len(c.pods("demo-compute")) == 2 {
			return ""
		}
		return fmt.Sprint(c.pods("demo-memory"), c.pods("demo-compute"))
	})
	stop()
	if replaced := <-done; replaced < 10 {
		t.Errorf("%d objects were replaced: the test shows little", replaced)
	}
	c.available("demo")
	c.equal("memory pods", "[demo-memory-0 demo-memory-1]", func() any { return c.pods("demo-memory") })
	c.equal("compute pods", "[demo-compute-0 demo-compute-1]", func() any { return c.pods("demo-compute") })
	if i := c.index("demo"); i.Status.Identity != string(i.UID) {
		t.Errorf("the index is %s: it was made anew", i.Status.Identity)
	}
	for _, call := range c.fleet.Changes() {
		if strings.HasPrefix(call, "evict") || strings.HasPrefix(call, "block") {
			t.Errorf("a call: %s", call)
		}
	}
}

// TestLostStateStops: of an index of which neither witness says anything nothing is decided, though
// nobody looked meanwhile, and whatever was dropped besides. Its annotations from a copy settle it.
func TestLostStateStops(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(strings.Replace(index, "spec:", "spec:\n  recovery: {onDataLoss: Recreate}", 1), "demo")
	c.available("demo")
	c.lookAgain("demo")
	kept, calls := c.index("demo").Annotations, len(c.fleet.Changes())
	want := c.state(c.index("demo"))
	i := &dmv1.DMIndex{}
	for _, statusToo := range []bool{false, true} {
		c.stop()
		c.deleteRecord(c.index("demo"))
		c.replaced("demo", i)
		message := "neither its annotations nor the record say so"
		if statusToo {
			c.noStatus("demo")
			message = "what the operator wrote down of the index is lost or old"
		}
		c.start(0)
		c.condition("demo", dmv1.ConditionDegraded, metav1.ConditionTrue, dmv1.ReasonStateConflict, message)
		c.patch("demo", i, func() { i.Annotations = maps.Clone(kept) })
		c.condition("demo", dmv1.ConditionDegraded, metav1.ConditionFalse, dmv1.ReasonAsDesired, "")
		c.available("demo")
		c.restored("put back", "demo", want)
	}
	if now := c.fleet.Changes()[calls:]; len(now) > 0 {
		t.Errorf("calls: %v", now)
	}
}

// TestStateOfAnEarlierVersion: objects of an operator that kept its state in annotations alone are
// taken over as they are.
func TestStateOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.lookAgain("demo")
	c.stop()
	objects := map[string]client.Object{"demo": &dmv1.DMIndex{}, "demo-memory": &dmv1.DMMemoryPool{}, "demo-compute": &dmv1.DMComputePool{}}
	before, calls := map[string]map[string]string{}, len(c.fleet.Changes())
	for name, object := range objects {
		c.patch(name, object, func() {
			annotations := object.GetAnnotations()
			delete(annotations, dmv1.AnnotationState)
			object.SetAnnotations(annotations)
		})
		c.deleteRecord(object)
		before[name] = object.GetAnnotations()
	}
	c.start(0)
	for name, object := range objects {
		c.record(object)
		if err := c.get(name, object); err != nil {
			t.Fatal(err)
		}
		now := object.GetAnnotations()
		if now[dmv1.AnnotationState] == "" {
			t.Errorf("%s has no stamp: %v", name, now)
		}
		delete(now, dmv1.AnnotationState)
		if !maps.Equal(now, before[name]) {
			t.Errorf("%s has %v, before %v", name, now, before[name])
		}
	}
	c.lookAgain("demo")
	c.available("demo")
	if now := c.fleet.Changes()[calls:]; len(now) > 0 {
		t.Errorf("calls: %v", now)
	}
}

// TestCopyOfAnIndex: an index whose data is lost goes on waiting for somebody's decision when it is
// replaced. A copy of it, made by hand or restored by a tool, is a new index: its annotations are
// of the other one.
func TestCopyOfAnIndex(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.deletePod("demo-memory-1")
	c.condition("demo", dmv1.ConditionDataLost, metav1.ConditionTrue, dmv1.ReasonMemoryLost, "")
	demo := c.index("demo")
	copied := &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "copied", Namespace: c.namespace, Annotations: demo.Annotations, Finalizers: demo.Finalizers}, Spec: demo.Spec}
	if err := api.Create(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	want := c.state(demo)
	c.replaced("demo", &dmv1.DMIndex{})
	// A tool restores the status as well, before the operator sees the copy.
	c.stop()
	restored := copied.DeepCopy()
	restored.ObjectMeta = metav1.ObjectMeta{Name: "restored", Namespace: c.namespace, Annotations: demo.Annotations}
	restored.Spec.Image = "img"
	if err := api.Create(t.Context(), restored); err != nil {
		t.Fatal(err)
	}
	restored.Status = demo.Status
	if err := api.Status().Update(t.Context(), restored); err != nil {
		t.Fatal(err)
	}
	c.start(0)
	c.available("restored")
	if now := c.index("restored"); now.Status.Identity != string(now.UID) {
		t.Errorf("the restored index is %s", now.Status.Identity)
	}
	c.available("copied")
	if now := c.index("copied"); now.Status.Identity != string(now.UID) || c.record(now).Data["created"] != "true" {
		t.Errorf("the copy is %s, its record: %v", now.Status.Identity, c.record(now).Data)
	}
	c.restored("replaced", "demo", want)
	c.condition("demo", dmv1.ConditionDataLost, metav1.ConditionTrue, dmv1.ReasonMemoryLost, "")
}

// TestReplacedAfterALoad: an index that was loaded from its backup, and the backup, are replaced
// long after their Jobs are gone: neither is the index closed or loaded again, nor is it dumped
// again. The artifact still goes with the backup.
func TestReplacedAfterALoad(t *testing.T) {
	t.Parallel()
	c := withBackup(t)
	c.create(fromBackup("a"), "new")
	c.attempt(c.restoring("new", "demo/a."), 1, &good)
	c.end("new-restore", false)
	c.available("new")
	for _, name := range []string{"new-restore", "a-dump"} {
		if err := api.Delete(t.Context(), c.job(name), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
		c.gone(name, &batchv1.Job{})
	}
	index, backup := c.state(c.index("new")), c.state(c.backup("a"))
	c.replaced("a", &dmv1.DMBackup{})
	c.replaced("new", &dmv1.DMIndex{})
	c.restored("replaced", "new", index)
	c.equal("state of the backup", backup, func() any { return c.state(c.backup("a")) })
	c.phase("a", dmv1.BackupComplete, dmv1.ReasonVerified, "")
	c.equal("finalizer", "["+dmv1.FinalizerArtifact+"]", func() any { return c.backup("a").Finalizers })
	c.available("new")
	c.noJob("new-restore")
	c.noJob("a-dump")
	if !c.leads("new") {
		t.Error("the Service of an index in use leads nowhere")
	}
	c.deleteRecord(c.backup("a"))
	c.equal("state of the backup", backup, func() any { return c.state(c.backup("a")) })
	c.delete(c.backup("a"))
	c.end("a-delete", false)
	c.gone("a", &dmv1.DMBackup{})
}
