package envtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
)

// protected waits until Protected of a memory pool has a reason and a message.
func (c *cluster) protected(pool string, status metav1.ConditionStatus, reason, message string) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("Protected of %s: %s %q", pool, reason, message), func() string {
		is := apimeta.FindStatusCondition(c.memoryPool(pool).Status.Conditions, dmv1.ConditionProtected)
		if is != nil && is.Status == status && is.Reason == reason && strings.Contains(is.Message, message) {
			return ""
		}
		return fmt.Sprint(is)
	})
}

// release annotates a memory pool.
func (c *cluster) release(pool, pods string) {
	c.t.Helper()
	object := &dmv1.DMMemoryPool{}
	c.patch(pool, object, func() {
		if object.Annotations == nil {
			object.Annotations = map[string]string{}
		}
		object.Annotations[dmv1.AnnotationRelease] = pods
	})
}

// evict is what a drain does with a pod.
func (c *cluster) evict(pod string) error {
	return api.SubResource("eviction").Create(c.t.Context(), c.pod(pod), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: c.namespace}})
}

// budget is how many pods of a memory pool have to be there, and which of its pods that are not
// well may be evicted. There is no controller of budgets in these tests: this does its work.
func (c *cluster) budget(pool string) any {
	c.t.Helper()
	b := &policyv1.PodDisruptionBudget{}
	if err := c.get(pool, b); err != nil {
		return err
	}
	pods := int32(0)
	for _, name := range c.pods(pool) {
		if p := c.pod(name); p.Labels[dmv1.LabelReleased] == "" && len(p.Status.Conditions) > 0 && p.Status.Conditions[0].Status == corev1.ConditionTrue {
			pods++
		}
	}
	least := int32(b.Spec.MinAvailable.IntValue())
	b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, CurrentHealthy: pods, DesiredHealthy: least, ExpectedPods: pods, DisruptionsAllowed: max(0, pods-least)}
	if err := api.Status().Update(c.t.Context(), b); err != nil {
		return err
	}
	return fmt.Sprintf("%d %s", least, *b.Spec.UnhealthyPodEvictionPolicy)
}

// TestMemoryPodsAreKept: pods with data of an index that would be lost are not evicted, and say for
// whom. A pod that is released is evicted at once, and the others still are not.
func TestMemoryPodsAreKept(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.protected("demo-memory", metav1.ConditionTrue, dmv1.ReasonInUse, "demo-memory-0 (demo), demo-memory-1 (demo)")
	c.equal("the budget", "2 IfHealthyBudget", func() any { return c.budget("demo-memory") })
	for _, s := range c.memoryPool("demo-memory").Status.Servers {
		if fmt.Sprint(s.KeptFor) != "[demo]" {
			t.Errorf("%s is kept for %v", s.Pod, s.KeptFor)
		}
	}
	for _, pod := range []string{"demo-memory-0", "demo-memory-1"} {
		if kept := c.pod(pod).Annotations[dmv1.AnnotationKeptFor]; kept != "demo" {
			t.Errorf("%s is kept for %q", pod, kept)
		}
		if err := c.evict(pod); !apierrors.IsTooManyRequests(err) {
			t.Errorf("evict %s: %v", pod, err)
		}
	}
	c.settled("demo")

	// Not even while it does not answer: its content is there.
	c.fleet.SetProblem(c.namespace, "demo-memory-0", "it is restarted")
	c.equal("readiness", corev1.ConditionFalse, func() any { return c.pod("demo-memory-0").Status.Conditions[0].Status })
	c.equal("the budget", "2 IfHealthyBudget", func() any { return c.budget("demo-memory") })
	if err := c.evict("demo-memory-0"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("evict a pod that is not ready: %v", err)
	}
	c.fleet.SetProblem(c.namespace, "demo-memory-0", "")
	c.available("demo")

	c.release("demo-memory", "demo-memory-1,node7")
	c.protected("demo-memory", metav1.ConditionTrue, dmv1.ReasonInUse, "with pods demo-memory-0 (demo): they")
	c.protected("demo-memory", metav1.ConditionTrue, dmv1.ReasonInUse, "dmindex.io/release names node7, and no pod of the pool has such a name")
	released := c.pod("demo-memory-1")
	if released.Labels[dmv1.LabelReleased] != "true" || released.Annotations[dmv1.AnnotationKeptFor] != "" || released.Annotations["karpenter.sh/do-not-disrupt"] != "" {
		t.Errorf("the released pod has %v, %v", released.Labels, released.Annotations)
	}
	if err := c.evict("demo-memory-0"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("evict the other one: %v", err)
	}
	c.settled("demo")

	// Taken back, it is kept again.
	c.release("demo-memory", "")
	c.protected("demo-memory", metav1.ConditionTrue, dmv1.ReasonInUse, "demo-memory-1 (demo)")
	if err := c.evict("demo-memory-1"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("evict what is not released any more: %v", err)
	}
	c.release("demo-memory", "demo-memory-1")
	c.protected("demo-memory", metav1.ConditionTrue, dmv1.ReasonInUse, "with pods demo-memory-0 (demo): they")
	if err := c.evict("demo-memory-1"); err != nil {
		t.Errorf("evict what is released: %v", err)
	}
	if told := c.operator.lines.decisions(); told["release pod demo-memory-1"] != 2 || told["keep pod demo-memory-1"] != 1 || told["release pod demo-memory-0"] != 0 {
		t.Errorf("the log has %v", told)
	}
}

// TestNoIndexInAPoolThatGoes: a pool that is to go once nobody has memory in it gets no new users.
func TestNoIndexInAPoolThatGoes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(memoryPool, "pool")
	c.create(strings.Replace(shared, "320Mi", "160Mi", 1), "one")
	c.available("one")
	c.protected("pool", metav1.ConditionTrue, dmv1.ReasonInUse, "(one)")
	c.delete(c.memoryPool("pool"))
	c.create(strings.Replace(shared, "320Mi", "160Mi", 1), "two")
	c.condition("two", dmv1.ConditionProgressing, metav1.ConditionTrue, dmv1.ReasonPoolMissing, "DMMemoryPool pool is being deleted")
	c.delete(c.index("one"))
	c.gone("pool", &dmv1.DMMemoryPool{})
	if memory := c.index("two").Annotations[dmv1.AnnotationMemory]; memory != "" {
		t.Errorf("it was made on %s", memory)
	}
}

// TestPodsWithoutDataAreEvicted: a server that was added to a pool, on which no index has memory,
// is evicted without a question, until an index is made there.
func TestPodsWithoutDataAreEvicted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(memoryPool, "pool")
	c.create(strings.Replace(shared, "320Mi", "160Mi", 1), "one")
	c.available("one")
	one := &dmv1.DMIndex{} // it joins no index that is paused
	c.patch("one", one, func() { one.Spec.Paused = true })
	pool := &dmv1.DMMemoryPool{}
	c.patch("pool", pool, func() { pool.Spec.Servers = 3 })
	c.memoryPoolReady("pool", dmv1.ReasonAsDesired, "all 3 memory servers answer")
	c.equal("label of the new one", "true", func() any { return c.pod("pool-2").Labels[dmv1.LabelReleased] })
	c.equal("the budget", "3 IfHealthyBudget", func() any { return c.budget("pool") })
	if err := c.evict("pool-0"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("evict a pod with data: %v", err)
	}
	c.create(strings.Replace(shared, "320Mi", "160Mi", 1), "two")
	c.available("two")
	c.protected("pool", metav1.ConditionTrue, dmv1.ReasonInUse, "pool-0 (one, two), pool-1 (one, two), pool-2 (two)")
	c.equal("label of the new one", "", func() any { return c.pod("pool-2").Labels[dmv1.LabelReleased] })
	c.settled("two")

	if err := api.Delete(t.Context(), c.index("two")); err != nil {
		t.Fatal(err)
	}
	c.gone("two", &dmv1.DMIndex{})
	c.equal("label of the new one", "true", func() any { return c.pod("pool-2").Labels[dmv1.LabelReleased] })
	if err := c.evict("pool-2"); err != nil {
		t.Errorf("evict a pod without data: %v", err)
	}
}

// TestCachesAreEvicted: the pods of an index that is made anew when data is lost may be evicted one
// after the other; so may those of one whose owner decided so.
func TestCachesAreEvicted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.protected("demo-memory", metav1.ConditionTrue, dmv1.ReasonInUse, "")
	index := &dmv1.DMIndex{}
	c.patch("demo", index, func() { index.Spec.Recovery.OnDataLoss = dmv1.OnDataLossRecreate })
	c.protected("demo-memory", metav1.ConditionFalse, dmv1.ReasonNotInUse, "")
	c.equal("the budget", "1 AlwaysAllow", func() any { return c.budget("demo-memory") })
	if kept := c.pod("demo-memory-0").Annotations[dmv1.AnnotationKeptFor]; kept != "" {
		t.Errorf("kept for %q", kept)
	}
	if err := c.evict("demo-memory-0"); err != nil {
		t.Error(err)
	}
}

// TestPodsOfEarlierOperators: memory pods that an earlier operator made, which would be evicted
// from a node that is not heard of for five minutes, stay there from now on. They are changed in
// place, and paused pools' too.
func TestPodsOfEarlierOperators(t *testing.T) {
	t.Parallel()
	for _, paused := range []bool{false, true} {
		c := newCluster(t)
		pool := parse(t, memoryPool, "pool")
		pool.SetNamespace(c.namespace)
		pool.SetAnnotations(map[string]string{dmv1.AnnotationNextID: "2", dmv1.AnnotationImage: "server:1"})
		pool.Object["spec"].(map[string]any)["paused"] = paused
		if err := api.Create(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		c.seenBefore("pool")
		typed := c.memoryPool("pool")
		uids := ""
		for id := range 2 {
			p := build.MemoryPod(typed, id, "server:1")
			p.Spec.Tolerations, p.Annotations = []corev1.Toleration{{Key: "disk", Operator: corev1.TolerationOpExists}}, map[string]string{"note": "a"}
			p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(typed, dmv1.GroupVersion.WithKind(dmv1.KindMemoryPool))}
			if err := api.Create(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if limited := slices.ContainsFunc(c.pod(p.Name).Spec.Tolerations, func(t corev1.Toleration) bool { return t.TolerationSeconds != nil }); !limited {
				t.Fatal("the API server adds no limits: the test shows nothing")
			}
			uids += string(p.UID)
		}
		c.start(0)
		c.eventually("the pods stay on nodes that are not heard of", func() string {
			for _, name := range c.pods("pool") {
				p := c.pod(name)
				forever := 0
				for _, t := range p.Spec.Tolerations {
					if t.Effect == corev1.TaintEffectNoExecute && t.TolerationSeconds == nil {
						forever++
					}
				}
				if forever != 2 || p.Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] != "false" || p.Annotations["note"] != "a" {
					return fmt.Sprint(p.Spec.Tolerations, p.Annotations)
				}
			}
			return ""
		})
		if now := string(c.pod("pool-0").UID + c.pod("pool-1").UID); now != uids {
			t.Error("pods were replaced")
		}
	}
}

// TestPoolInUse: a pool that is deleted while indexes have memory in it goes when they are gone,
// and says so; meanwhile they are served.
func TestPoolInUse(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(memoryPool, "pool")
	c.create(strings.Replace(shared, "320Mi", "160Mi", 1), "one")
	c.create(strings.Replace(shared, "320Mi", "160Mi", 1), "two")
	c.available("one")
	c.available("two")
	c.protected("pool", metav1.ConditionTrue, dmv1.ReasonInUse, "pool-0 (one, two), pool-1 (one, two)")
	if err := api.Delete(t.Context(), c.memoryPool("pool")); err != nil {
		t.Fatal(err)
	}
	c.protected("pool", metav1.ConditionTrue, dmv1.ReasonDeleting, "Delete one, two first")
	c.settled("one")
	c.available("two")

	uid := string(c.pod("pool-0").UID)
	if err := api.Delete(t.Context(), c.index("one")); err != nil {
		t.Fatal(err)
	}
	c.gone("one", &dmv1.DMIndex{})
	c.equal("admitted", map[string]uint64{string(c.index("two").UID): 20}, func() any { return c.fleet.Admitted(uid) })
	c.protected("pool", metav1.ConditionTrue, dmv1.ReasonDeleting, "Delete two first")
	if err := api.Delete(t.Context(), c.index("two")); err != nil {
		t.Fatal(err)
	}
	c.gone("two", &dmv1.DMIndex{})
	c.gone("pool", &dmv1.DMMemoryPool{})
}

// TestNothingHoldsPools: when the last index is gone no pool has a finalizer: whoever waited for
// that may remove the operator, and delete the namespace then.
func TestNothingHoldsPools(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(memoryPool, "pool")
	c.create(index, "demo")
	c.create(shared, "one")
	c.available("demo")
	c.available("one")
	for _, pool := range []string{"pool", "demo-memory"} {
		c.equal("finalizers of "+pool, []string{dmv1.FinalizerInUse}, func() any { return c.memoryPool(pool).Finalizers })
	}
	for _, name := range []string{"demo", "one"} {
		if err := api.Delete(t.Context(), c.index(name)); err != nil {
			t.Fatal(err)
		}
		c.gone(name, &dmv1.DMIndex{})
	}
	c.stop()
	for _, pool := range []string{"pool", "demo-memory"} {
		if has := c.memoryPool(pool).Finalizers; len(has) > 0 {
			t.Errorf("%s has %v", pool, has)
		}
	}
}

// TestDeletedTogether: whatever the order in which pools and indexes are deleted, as with their
// namespace, all of them go.
func TestDeletedTogether(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(memoryPool, "pool")
	c.create(shared, "one")
	c.available("one")
	c.protected("pool", metav1.ConditionTrue, dmv1.ReasonInUse, "")
	if err := api.Delete(t.Context(), c.memoryPool("pool")); err != nil {
		t.Fatal(err)
	}
	if err := api.Delete(t.Context(), c.index("one")); err != nil {
		t.Fatal(err)
	}
	c.gone("one", &dmv1.DMIndex{})
	c.gone("pool", &dmv1.DMMemoryPool{})
}
