package envtest

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// repaired kills a compute pod that is a client of the memory servers and waits until its clients
// are fenced, its keys have another owner and another pod takes its place.
func (c *cluster) repaired(name, pod, instead string) {
	c.t.Helper()
	home, identity := string(c.pod(name+"-memory-0").UID), c.index(name).Status.Identity
	client := c.fleet.Register(home, identity, pod)
	c.deletePod(pod)
	c.eventually("the clients of "+pod+" are fenced, and its keys have another owner", func() string {
		owners := c.owners(name).([]string)
		if slices.Contains(c.fleet.Fenced(home, identity), client) && len(owners) > 0 && !slices.Contains(owners, pod) {
			return ""
		}
		return fmt.Sprint("owners ", owners, " fenced ", c.fleet.Fenced(home, identity), " conditions ", c.index(name).Status.Conditions)
	})
	c.eventually(instead+" serves keys", func() string {
		if owners := c.owners(name).([]string); !slices.Contains(owners, instead) {
			return fmt.Sprint(owners, c.pods(name+"-compute"))
		}
		return ""
	})
}

// TestRepairsWhatItCannotMake: an index whose specification cannot be carried out is served and
// repaired all the same, says what is in the way, and is made true as soon as it can be.
func TestRepairsWhatItCannotMake(t *testing.T) {
	t.Parallel()
	four := int32(4)
	for _, e := range []struct {
		name     string
		obstruct func(*cluster)
		says     string // by the condition
		mend     func(*cluster)
	}{
		{"the memory pool of a template is larger than the template", func(c *cluster) {
			pool := &dmv1.DMMemoryPool{}
			c.patch("demo-memory", pool, func() { pool.Spec.Servers = 3 })
		}, "servers can only be raised", func(c *cluster) {
			i := &dmv1.DMIndex{}
			c.patch("demo", i, func() { i.Spec.MemoryPools[0].Template.Servers = 3 })
		}},
		{"the template's minReplicas are more than the pool was scaled to", func(c *cluster) {
			i := &dmv1.DMIndex{}
			c.patch("demo", i, func() {
				i.Spec.ComputePools[0].Template.Replicas, i.Spec.ComputePools[0].Template.MinReplicas = 4, &four
			})
		}, "minReplicas", func(c *cluster) { c.scale("demo-compute", 4) }},
		{"somebody else has the name of the Service", func(c *cluster) {
			c.stop()
			s := &corev1.Service{}
			c.patch("demo", s, func() { s.OwnerReferences = nil })
			c.start(0)
		}, "Service demo exists", func(c *cluster) {
			s := &corev1.Service{}
			if err := c.get("demo", s); err != nil {
				c.t.Fatal(err)
			}
			if err := api.Delete(c.t.Context(), s); err != nil {
				c.t.Fatal(err)
			}
			i := &dmv1.DMIndex{}
			c.patch("demo", i, func() { i.Labels = map[string]string{"look": "again"} })
		}},
	} {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.start(0)
			c.create(index, "demo")
			c.available("demo")
			e.obstruct(c)
			i := &dmv1.DMIndex{}
			c.patch("demo", i, func() { i.Labels = map[string]string{"look": "now"} })
			c.condition("demo", dmv1.ConditionDegraded, metav1.ConditionTrue, "", e.says)
			c.condition("demo", dmv1.ConditionProgressing, metav1.ConditionTrue, "", e.says)
			c.available("demo")
			c.repaired("demo", "demo-compute-1", "demo-compute-2")
			c.available("demo")
			e.mend(c)
			c.condition("demo", dmv1.ConditionDegraded, metav1.ConditionFalse, dmv1.ReasonAsDesired, "")
			c.condition("demo", dmv1.ConditionProgressing, metav1.ConditionFalse, dmv1.ReasonAsDesired, "")
			c.settled("demo")
		})
	}
}

// TestPoolRepairsWhatItCannotMake: a pool whose disruption budget has somebody else's name replaces
// its lost servers.
func TestPoolRepairsWhatItCannotMake(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, name := range []string{"demo-compute", "demo-memory"} {
		b := budget(name)
		b.Namespace = c.namespace
		if err := api.Create(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.poolReady("demo-compute", dmv1.ReasonNameTaken, "PodDisruptionBudget demo-compute exists")
	c.memoryPoolReady("demo-memory", dmv1.ReasonNameTaken, "PodDisruptionBudget demo-memory exists")
	c.repaired("demo", "demo-compute-1", "demo-compute-2")
	c.deletePod("demo-memory-1")
	c.equal("memory pods", "[demo-memory-0 demo-memory-2]", func() any { return c.pods("demo-memory") })
}

// TestMissingComputePool: an index that names a pool which is not there is served by its other
// ones, and repaired.
func TestMissingComputePool(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(twoComputePools, "demo")
	c.create(otherComputePool, "other")
	c.available("demo")
	pool := &dmv1.DMComputePool{}
	if err := c.get("other", pool); err != nil {
		t.Fatal(err)
	}
	if err := api.Delete(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	c.deletePod("other-0")
	c.condition("demo", dmv1.ConditionDegraded, metav1.ConditionTrue, dmv1.ReasonPoolMissing, "there is no DMComputePool other")
	c.available("demo")
	c.repaired("demo", "demo-compute-1", "demo-compute-2")
	c.equal("owners without the pool that is gone", false, func() any { return slices.Contains(c.owners("demo").([]string), "other-0") })
}

// TestPausedRepairs: spec.paused pauses changes. Lost compute servers are fenced, replaced and
// their keys served by others; the size of the pools, their images and templates stay as they are.
func TestPausedRepairs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	i := &dmv1.DMIndex{}
	c.patch("demo", i, func() { i.Spec.Paused = true })
	c.condition("demo", dmv1.ConditionPaused, metav1.ConditionTrue, dmv1.ReasonPausedBySpec, "")
	c.equal("the pools are paused", "true true", func() any {
		compute, memory := &dmv1.DMComputePool{}, &dmv1.DMMemoryPool{}
		_, _ = c.get("demo-compute", compute), c.get("demo-memory", memory)
		return fmt.Sprint(len(compute.Status.Conditions) > 1 && compute.Spec.Paused, memory.Spec.Paused)
	})
	c.settled("demo")
	c.scale("demo-compute", 3)
	c.patch("demo", i, func() { i.Spec.Image = "server:2" })
	c.repaired("demo", "demo-compute-1", "demo-compute-2")
	c.settled("demo")
	if pods := fmt.Sprint(c.pods("demo-compute")); pods != "[demo-compute-0 demo-compute-2]" {
		t.Errorf("compute pods while paused: %s", pods)
	}
	if image := c.pod("demo-memory-0").Spec.Containers[0].Image; image != "server:1" {
		t.Errorf("image of a memory pod while paused: %s", image)
	}
	c.available("demo")

	// A lost memory server is lost data, which everybody is told. It is not made anew.
	c.patch("demo", i, func() { i.Spec.Recovery.OnDataLoss = dmv1.OnDataLossRecreate })
	c.deletePod("demo-memory-1")
	c.condition("demo", dmv1.ConditionDataLost, metav1.ConditionTrue, dmv1.ReasonMemoryLost, "once spec.paused is false")
	c.equal("demo-compute-0 is blocked", true, func() any { return slices.Contains(c.fleet.Changes(), "block demo-compute-0") })
	c.equal("memory pods", "[demo-memory-0 demo-memory-2]", func() any { return c.pods("demo-memory") })
	c.settled("demo")

	c.patch("demo", i, func() { i.Spec.Paused = false })
	c.available("demo")
	c.equal("compute pods", 3, func() any { return len(c.pods("demo-compute")) })
	c.condition("demo", dmv1.ConditionProgressing, metav1.ConditionFalse, dmv1.ReasonAsDesired, "")
	c.settled("demo")
}

const twoComputePools = `
apiVersion: dmindex.io/v1alpha1
kind: DMIndex
metadata: {name: NAME}
spec:
  design: Sherman
  durability: Memory
  key: {type: Uint64}
  value: {maxLength: 8}
  memoryPools:
  - {name: memory, template: {servers: 2, memory: 512Mi}}
  computePools:
  - {name: compute, template: {replicas: 2}}
  - {name: other, ref: {name: other}}
`

const otherComputePool = `
apiVersion: dmindex.io/v1alpha1
kind: DMComputePool
metadata: {name: NAME}
spec: {indexName: demo, replicas: 1}
`

// budget is a disruption budget of somebody else.
func budget(name string) *policyv1.PodDisruptionBudget {
	one := intstr.FromInt32(1)
	return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}},
	}}
}
