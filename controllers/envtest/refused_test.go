package envtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// poolReady waits until PoolReady of a compute pool has a reason and a message.
func (c *cluster) poolReady(name, reason, message string) {
	c.t.Helper()
	c.isReady(name, reason, message, func() ([]metav1.Condition, error) {
		pool := &dmv1.DMComputePool{}
		err := c.get(name, pool)
		return pool.Status.Conditions, err
	})
}

// memoryPoolReady is the same of a memory pool.
func (c *cluster) memoryPoolReady(name, reason, message string) {
	c.t.Helper()
	c.isReady(name, reason, message, func() ([]metav1.Condition, error) {
		pool := &dmv1.DMMemoryPool{}
		err := c.get(name, pool)
		return pool.Status.Conditions, err
	})
}

func (c *cluster) computePoolReady(name, reason, message string) {
	c.t.Helper()
	c.isReady(name, reason, message, func() ([]metav1.Condition, error) {
		pool := &dmv1.DMComputePool{}
		err := c.get(name, pool)
		return pool.Status.Conditions, err
	})
}

func (c *cluster) isReady(name, reason, message string, get func() ([]metav1.Condition, error)) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("PoolReady of %s: %s %q", name, reason, message), func() string {
		conditions, err := get()
		if err != nil {
			return err.Error()
		}
		for _, cond := range conditions {
			if cond.Type == dmv1.ConditionPoolReady && cond.Reason == reason && strings.Contains(cond.Message, message) {
				return ""
			}
		}
		return fmt.Sprint(conditions)
	})
}

// nextID is the number that a pool says it gives to its next pod.
func (c *cluster) nextID(pool string) string {
	c.t.Helper()
	object := &dmv1.DMComputePool{}
	if err := c.get(pool, object); err != nil {
		c.t.Fatal(err)
	}
	return object.Annotations[dmv1.AnnotationNextID]
}

// TestNamespaceGoes: where nothing can be made any more the operator makes nothing, takes no
// numbers and comes to rest.
func TestNamespaceGoes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	if err := api.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}); err != nil {
		t.Fatal(err)
	}
	before := c.operator.writes.Load()
	for _, pod := range []string{"demo-compute-0", "demo-compute-1"} {
		c.deletePod(pod)
	}
	c.poolReady("demo-compute", dmv1.ReasonDeleting, "the namespace is being deleted")
	c.quiet(3 * time.Second)
	// One attempt for each of the pods' events, the numbers of two pods, the statuses of pool and
	// index: nowhere near ten a second.
	if n := c.operator.writes.Load() - before; n > 30 {
		t.Errorf("%d writes:\n%s", n, c.operator.wrote(before))
	}
	c.equal("the next number: 2 and 3 are taken by pods that will never be", "4", func() any { return c.nextID("demo-compute") })
}

const unschedulable = `
apiVersion: dmindex.io/v1alpha1
kind: DMIndex
metadata: {name: NAME}
spec:
  design: Sherman
  durability: Memory
  key: {type: Uint64}
  value: {maxLength: 8}
  memoryPools:
  - {name: memory, template: {servers: 1, memory: 512Mi}}
  computePools:
  - {name: compute, template: {replicas: 2, pod: {priorityClassName: CLASS}}}
`

// TestRefusedPods: pods that the API server refuses are tried again more and more seldom, under the
// numbers that were taken once.
func TestRefusedPods(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	class := c.namespace + "-class"
	c.start(0)
	c.create(strings.ReplaceAll(unschedulable, "CLASS", class), "demo")
	c.poolReady("demo-compute", dmv1.ReasonPoolRefused, class)
	c.eventually("three more attempts that write nothing", func() string {
		written, attempts := c.operator.wrote(0), 0
		for _, what := range strings.Split(written, "\n") {
			switch what {
			case "POST /api/v1/namespaces/" + c.namespace + "/pods":
				if attempts++; attempts > 3 {
					return ""
				}
			case "PATCH /apis/dmindex.io/v1alpha1/namespaces/" + c.namespace + "/dmcomputepools/demo-compute":
				// of the numbers, or when the pool was made
				attempts = 0
			}
		}
		return written
	})
	if next := c.nextID("demo-compute"); next != "2" {
		t.Errorf("the next number is %s", next)
	}
	if err := api.Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Value: 1}); err != nil {
		t.Fatal(err)
	}
	c.equal("compute pods", "[demo-compute-0 demo-compute-1]", func() any { return c.pods("demo-compute") })
	c.available("demo")
	c.settled("demo")
}
