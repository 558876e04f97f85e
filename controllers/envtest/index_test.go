package envtest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// TestIndexComesUp: from apply to Available, with everything that belongs to it, and then nothing
// is written any more.
func TestIndexComesUp(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")

	c.equal("memory pods", "[demo-memory-0 demo-memory-1]", func() any { return c.pods("demo-memory") })
	c.equal("compute pods", "[demo-compute-0 demo-compute-1]", func() any { return c.pods("demo-compute") })
	c.equal("owners", "[demo-compute-0 demo-compute-1]", func() any { return c.owners("demo") })
	status := c.index("demo").Status
	if status.MemoryReady != "2/2" || status.ComputeReady != "2/2" || status.Endpoint != "demo."+c.namespace+".svc:6379" || status.Image != "server:1" {
		t.Errorf("status: %+v", status)
	}
	for _, o := range []struct {
		name   string
		object client.Object
	}{
		{"demo", &corev1.Service{}}, {"demo-memory", &corev1.Service{}}, {"demo-compute", &corev1.Service{}},
		{"demo-memory", &policyv1.PodDisruptionBudget{}}, {"demo-compute", &policyv1.PodDisruptionBudget{}},
		{"demo-config", &corev1.ConfigMap{}}, {"demo-conn", &corev1.Secret{}}, {"demo-ca", &corev1.Secret{}},
		{"demo-memory-ca", &corev1.Secret{}}, {"demo-memory-tls", &corev1.Secret{}}, {"demo-compute-tls", &corev1.Secret{}},
	} {
		if err := c.get(o.name, o.object); err != nil {
			t.Errorf("%T: %v", o.object, err)
		}
	}
	secret := &corev1.Secret{}
	if err := c.get("demo-conn", secret); err != nil || len(secret.Data["password"]) < 20 || string(secret.Data["resp"]) != "demo."+c.namespace+".svc:6379" {
		t.Errorf("demo-conn: %v, %v", secret.Data, err)
	}
	c.settled("demo")
}

// settled asserts that the operator comes to rest, and writes nothing when it looks at everything
// again. However long it was quiet, on a busy machine what it does last may still be to come: so it
// gets more than one try. Who writes at a look, or now and then, has none without a write.
func (c *cluster) settled(name string) {
	c.t.Helper()
	const tries = 4
	for range tries {
		c.quiet(3 * time.Second) // longer than `soon`
		before := c.operator.writes.Load()
		c.lookAgain(name)
		c.quiet(time.Second)
		after := c.operator.writes.Load()
		if after == before {
			return
		}
		c.t.Logf("%d writes when there seemed to be nothing to do:\n%s", after-before, c.operator.wrote(before))
	}
	c.t.Errorf("the operator does not come to rest in %d tries", tries)
}

// lookAgain makes the operator look at an index, again and again.
func (c *cluster) lookAgain(name string) {
	c.t.Helper()
	looks, index := c.fleet.Looks(), &dmv1.DMIndex{}
	const rounds = 5
	for n := range rounds {
		c.patch(name, index, func() { index.Labels = map[string]string{"look": fmt.Sprint("again-", looks, "-", n)} })
		c.eventually("another look", func() string {
			if c.fleet.Looks() > looks+4*n {
				return ""
			}
			return "not yet"
		})
	}
}

// quiet waits until the operator wrote nothing for a while, events included, which are written by
// themselves and later. The while is counted in looks, not by the clock: while the machine stands
// still, so does the operator.
func (c *cluster) quiet(while time.Duration) {
	c.t.Helper()
	before, events, looks := c.operator.writes.Load(), c.operator.events.Load(), 0
	c.eventually("no more writes", func() string {
		if now, said := c.operator.writes.Load(), c.operator.events.Load(); now != before || said != events {
			before, events, looks = now, said, 0
		}
		if looks++; looks > int(while/look) {
			return ""
		}
		return "the last writes:\n" + c.operator.wrote(before-10)
	})
}

func (c *cluster) scale(pool string, replicas int32) {
	c.t.Helper()
	object := &dmv1.DMComputePool{}
	object.Name, object.Namespace = pool, c.namespace
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	if err := api.SubResource("scale").Update(c.t.Context(), object, client.WithSubResourceBody(scale)); err != nil {
		c.t.Fatal(err)
	}
}

// TestScale: a new server joins the map; one that leaves hands over first; one that was deleted is
// replaced under a new number. The operator never writes replicas back.
func TestScale(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.scale("demo-compute", 3)
	c.equal("owners", "[demo-compute-0 demo-compute-2 demo-compute-1]", func() any {
		owners := c.owners("demo").([]string)
		if !slices.Contains(owners, "demo-compute-2") {
			return owners
		}
		// where the newcomer's ranges lie is partition's business
		return "[demo-compute-0 demo-compute-2 demo-compute-1]"
	})
	c.scale("demo-compute", 1)
	c.equal("compute pods", "[demo-compute-0]", func() any { return c.pods("demo-compute") })
	c.equal("owners", "[demo-compute-0]", func() any { return slices.Compact(c.owners("demo").([]string)) })
	calls := c.fleet.Changes()
	for _, pod := range []string{"demo-compute-1", "demo-compute-2"} {
		drained := slices.Index(calls, "drain "+pod)
		if drained < 0 || drained < slices.Index(calls, "swap 3") {
			t.Errorf("%s was not drained after the map changed: %v", pod, calls)
		}
	}
	c.deletePod("demo-compute-0")
	c.equal("compute pods", "[demo-compute-3]", func() any { return c.pods("demo-compute") })
	c.equal("owners", "[demo-compute-3]", func() any { return slices.Compact(c.owners("demo").([]string)) })
	c.available("demo")
	pool := &dmv1.DMComputePool{}
	if err := c.get("demo-compute", pool); err != nil || pool.Spec.Replicas != 1 {
		t.Errorf("replicas: %d, %v", pool.Spec.Replicas, err)
	}
	c.settled("demo")
}

// TestNewTemplate: a change of the template replaces compute pods and never memory pods.
func TestNewTemplate(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	uid := c.pod("demo-memory-0").UID
	index := &dmv1.DMIndex{}
	c.patch("demo", index, func() { index.Spec.Image = "server:2" })
	c.equal("compute pods", "[demo-compute-2 demo-compute-3]", func() any { return c.pods("demo-compute") })
	c.equal("images of memory pods", "server:2", func() any { return c.pod("demo-memory-0").Spec.Containers[0].Image })
	if c.pod("demo-memory-0").UID != uid {
		t.Error("a memory pod was replaced")
	}
	c.available("demo")
	cache := resource.MustParse("128Mi")
	c.patch("demo", index, func() { index.Spec.ComputePools[0].Template.Cache = &cache })
	c.eventually("the index says that it has come to rest", func() string {
		now := c.index("demo")
		if p := apimeta.FindStatusCondition(now.Status.Conditions, dmv1.ConditionProgressing); now.Status.ObservedGeneration < now.Generation || p.Status != metav1.ConditionFalse {
			return fmt.Sprint(p)
		}
		return ""
	})
	if got := fmt.Sprint(c.pods("demo-compute")); got != "[demo-compute-4 demo-compute-5]" {
		t.Errorf("the index said that nothing is going on when its compute pods were %s", got)
	}
	c.equal("compute pods", "[demo-compute-4 demo-compute-5]", func() any { return c.pods("demo-compute") })
	c.equal("cache of compute pods", true, func() any {
		return slices.Contains(c.pod("demo-compute-4").Spec.Containers[0].Args, "--cache=134217728")
	})
	c.available("demo")
}

// TestDataLossBlocks: a lost memory pod stops the index until somebody decides; then it starts
// again, empty, under a new identity.
func TestDataLossBlocks(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	before := c.index("demo").Status.Identity
	survivor := string(c.pod("demo-memory-0").UID)
	c.deletePod("demo-memory-1")
	c.condition("demo", dmv1.ConditionDataLost, metav1.ConditionTrue, dmv1.ReasonMemoryLost, "memory server 2 (pod demo-memory-1): its pod is gone")
	c.condition("demo", dmv1.ConditionDegraded, metav1.ConditionTrue, dmv1.ReasonMemoryLost, "memory server 2 (pod demo-memory-1): its pod is gone")
	c.condition("demo", dmv1.ConditionAvailable, metav1.ConditionFalse, dmv1.ReasonMemoryLost, "set spec.recovery.onDataLoss to Recreate")
	c.equal("memory pods", "[demo-memory-0 demo-memory-2]", func() any { return c.pods("demo-memory") })
	for _, pod := range []string{"demo-compute-0", "demo-compute-1"} {
		c.equal(pod+" is blocked", true, func() any { return slices.Contains(c.fleet.Changes(), "block "+pod) })
	}
	c.settled("demo")
	if identity := c.index("demo").Status.Identity; identity != before {
		t.Errorf("identity is %s, was %s", identity, before)
	}
	index := &dmv1.DMIndex{}
	c.patch("demo", index, func() { index.Spec.Recovery.OnDataLoss = dmv1.OnDataLossRecreate })
	c.available("demo")
	c.condition("demo", dmv1.ConditionDataLost, metav1.ConditionFalse, dmv1.ReasonIntact, "")
	c.condition("demo", dmv1.ConditionDegraded, metav1.ConditionFalse, dmv1.ReasonAsDesired, "")
	identity := c.index("demo").Status.Identity
	if identity != before+"/1" {
		t.Errorf("identity is %s, want %s/1", identity, before)
	}
	c.equal("admitted", map[string]uint64{identity: 64}, func() any { return c.fleet.Admitted(survivor) })
	c.equal("compute pods", "[demo-compute-2 demo-compute-3]", func() any { return c.pods("demo-compute") })
	c.available("demo")
	c.settled("demo")
}

// TestContentLost: a server that came back without its content is a lost server, though its pod is
// there.
func TestContentLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.fleet.Forget(string(c.pod("demo-memory-1").UID))
	index := &dmv1.DMIndex{}
	c.patch("demo", index, func() { index.Labels = map[string]string{"look": "again"} })
	c.condition("demo", dmv1.ConditionDataLost, metav1.ConditionTrue, dmv1.ReasonMemoryLost, "memory server 2 (pod demo-memory-1): it came back without its content")
}

// TestMemoryAway: a memory server that does not answer is no data loss, and does not keep the map
// from changing.
func TestMemoryAway(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.fleet.SetAway(c.namespace, "demo-memory-1", true)
	c.scale("demo-compute", 3)
	c.condition("demo", dmv1.ConditionAvailable, metav1.ConditionFalse, dmv1.ReasonMemoryUnreachable, "memory server 2 (pod demo-memory-1)")
	c.condition("demo", dmv1.ConditionDataLost, metav1.ConditionFalse, "", "")
	c.eventually("the map has the new server", func() string {
		if slices.Contains(c.owners("demo").([]string), "demo-compute-2") {
			return ""
		}
		return fmt.Sprint(c.owners("demo"))
	})
	c.fleet.SetAway(c.namespace, "demo-memory-1", false)
	index := &dmv1.DMIndex{}
	c.patch("demo", index, func() { index.Labels = map[string]string{"look": "again"} })
	c.available("demo")
}

// TestPaused: a paused index is left as it is.
func TestPaused(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	index := &dmv1.DMIndex{}
	c.patch("demo", index, func() { index.Spec.Paused = true })
	c.condition("demo", dmv1.ConditionPaused, metav1.ConditionTrue, dmv1.ReasonPausedBySpec, "")
	pool := &dmv1.DMComputePool{}
	c.equal("the pool is paused", true, func() any { _ = c.get("demo-compute", pool); return pool.Spec.Paused })
	c.scale("demo-compute", 3)
	c.settled("demo")
	if pods := c.pods("demo-compute"); len(pods) != 2 {
		t.Errorf("pods: %v", pods)
	}
	c.patch("demo", index, func() { index.Spec.Paused = false })
	c.equal("compute pods", "[demo-compute-0 demo-compute-1 demo-compute-2]", func() any { return c.pods("demo-compute") })
}

const shared = `
apiVersion: dmindex.io/v1alpha1
kind: DMIndex
metadata: {name: NAME}
spec:
  design: DEX
  durability: Memory
  key: {type: Uint64}
  value: {maxLength: 8}
  memoryPools:
  - {name: shared, ref: {name: pool}, quota: 320Mi}
  computePools:
  - {name: compute, template: {replicas: 1}}
`

// TestSharedPool: what does not fit waits and says how much is missing where; what is deleted gives
// its memory back.
func TestSharedPool(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(shared, "one")
	c.condition("one", dmv1.ConditionAvailable, metav1.ConditionFalse, dmv1.ReasonPoolMissing, "there is no DMMemoryPool pool: make it")
	c.create(memoryPool, "pool")
	c.available("one")
	c.create(shared, "two")
	c.condition("two", dmv1.ConditionAvailable, metav1.ConditionFalse, dmv1.ReasonMemoryPending, "memory server 1 (pod pool-0) has 24 chunks of 8388608 bytes left, the index asks for 40")
	index := &dmv1.DMIndex{}
	uid := string(c.pod("pool-0").UID)

	// A server that is away holds the deletion, until it answers.
	c.fleet.SetAway(c.namespace, "pool-1", true)
	if err := api.Delete(t.Context(), c.index("one")); err != nil {
		t.Fatal(err)
	}
	c.condition("one", dmv1.ConditionAvailable, metav1.ConditionFalse, dmv1.ReasonDeleting, "pool-1")
	c.fleet.SetAway(c.namespace, "pool-1", false)
	c.gone("one", index)
	c.available("two")
	c.equal("admitted", map[string]uint64{string(c.index("two").UID): 40}, func() any { return c.fleet.Admitted(uid) })
	pool := &dmv1.DMMemoryPool{}
	if err := c.get("pool", pool); err != nil {
		t.Fatal(err)
	}

	// A pool that is gone does not hold anything.
	c.deletePod("pool-0")
	c.deletePod("pool-1")
	if err := api.Delete(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	c.protected("pool", metav1.ConditionFalse, dmv1.ReasonDeleting, "Delete two first")
	if err := api.Delete(t.Context(), c.index("two")); err != nil {
		t.Fatal(err)
	}
	c.gone("two", index)
	c.gone("pool", pool)
}

// TestNameTaken: an object of somebody else is not written over.
func TestNameTaken(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	other := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: c.namespace}}
	other.Spec.Ports = []corev1.ServicePort{{Port: 1}}
	if err := api.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	c.start(0)
	c.create(index, "demo")
	c.condition("demo", dmv1.ConditionAvailable, metav1.ConditionFalse, dmv1.ReasonNameTaken, "Service demo exists and is not of demo: rename one of them or delete it")
}

// TestOperatorDiesAtEachWrite: an operator that is cut off after any number of writes leaves
// nothing that the next one cannot finish, and no number, authority or password is given twice.
func TestOperatorDiesAtEachWrite(t *testing.T) {
	t.Parallel()
	for lane := range int64(2) {
		t.Run(fmt.Sprint("lane ", lane), func(t *testing.T) {
			t.Parallel()
			done := false
			for limit := lane + 1; !done; limit += 2 { // each has a namespace of its own
				t.Run(fmt.Sprint(limit), func(t *testing.T) { done = diesAfter(newCluster(t), limit) })
			}
		})
	}
}

// diesAfter reports whether the first operator was done before its limit.
func diesAfter(c *cluster, limit int64) (done bool) {
	c.create(index, "demo")
	c.start(limit)
	c.eventually(fmt.Sprintf("%d writes", limit), func() string {
		for _, cond := range c.index("demo").Status.Conditions {
			done = done || cond.Type == dmv1.ConditionAvailable && cond.Status == metav1.ConditionTrue
		}
		if done || c.operator.writes.Load() > limit {
			return ""
		}
		return fmt.Sprintf("%d so far", c.operator.writes.Load())
	})
	c.stop()
	c.start(0)
	c.available("demo")
	c.eventually("two pods each", func() string {
		memory, compute := c.pods("demo-memory"), c.pods("demo-compute")
		if len(memory) != 2 || len(compute) != 2 {
			return fmt.Sprint(memory, compute)
		}
		return ""
	})
	return done
}
