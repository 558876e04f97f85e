package envtest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// onNode gives a pod a node of its own.
func (c *cluster) onNode(pod string) *corev1.Node {
	c.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.namespace + "-" + pod}}
	if err := api.Create(c.t.Context(), node); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = api.Delete(context.Background(), node) })
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node.Name}}
	if err := api.SubResource("binding").Create(c.t.Context(), c.pod(pod), binding); err != nil {
		c.t.Fatal(err)
	}
	return node
}

// TestCordonIsSeen: what a pod holds on a node that is cordoned is moved long before the look at
// its pool that is due anyway.
func TestCordonIsSeen(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	node := c.onNode("demo-memory-0")
	c.settled("demo")
	// A settled pool is looked at every 20 s. So after this look nothing else makes another one.
	pool := &dmv1.DMMemoryPool{}
	c.patch("demo-memory", pool, func() { pool.Spec.SuspectAfterSeconds = 3 })
	c.eventually("a look", func() string {
		for _, is := range c.memoryPool("demo-memory").Status.Conditions {
			if is.ObservedGeneration != pool.Generation {
				return fmt.Sprint(is, " of generation ", pool.Generation)
			}
		}
		return ""
	})
	const most = 10 * time.Second
	began := time.Now()
	node.Spec.Unschedulable = true
	if err := api.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	c.eventually("another pod is made", func() string {
		if pods := c.pods("demo-memory"); !strings.Contains(fmt.Sprint(pods), "demo-memory-1024") {
			return fmt.Sprint(pods)
		}
		return ""
	})
	if took := time.Since(began); took > most {
		t.Errorf("the cordon was seen after %v", took)
	}
	c.eventually("the former pod is deleted", func() string {
		if c.pod("demo-memory-0").DeletionTimestamp == nil {
			return fmt.Sprint(c.rolesOf("demo-memory"))
		}
		return ""
	})
	c.deletePod("demo-memory-0") // there is no kubelet that would end it
	c.equal("the pods", []string{"demo-memory-1 none", "demo-memory-1024 primary"}, func() any { return c.rolesOf("demo-memory") })
	c.available("demo")
}
