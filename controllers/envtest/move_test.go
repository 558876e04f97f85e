package envtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// rolesOf are the pods of a memory pool and what their processes are for their volumes.
func (c *cluster) rolesOf(pool string) any {
	pods := &corev1.PodList{}
	if err := api.List(c.t.Context(), pods, client.InNamespace(c.namespace), client.MatchingLabels{dmv1.LabelPool: pool}); err != nil {
		return err
	}
	var list []string
	for _, p := range pods.Items {
		list = append(list, fmt.Sprint(p.Name, " ", c.fleet.RoleOf(string(p.UID))))
	}
	slices.Sort(list)
	return list
}

// TestVolumeMoves: a volume is moved to another pod while its index is served. The index keeps its
// servers and its data, and the former pod goes.
func TestVolumeMoves(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	pool, identity := &dmv1.DMMemoryPool{}, string(c.index("demo").UID)
	memory := c.index("demo").Annotations[dmv1.AnnotationMemory]
	admitted := c.fleet.Admitted(string(c.pod("demo-memory-0").UID))

	c.patch("demo-memory", pool, func() { pool.Annotations[dmv1.AnnotationMove] = "demo-memory-0" })
	c.equal("the pods", []string{"demo-memory-1 none", "demo-memory-1024 primary"}, func() any { return c.rolesOf("demo-memory") })
	c.available("demo")
	if got := c.fleet.Admitted(string(c.pod("demo-memory-1024").UID)); fmt.Sprint(got) != fmt.Sprint(admitted) || got[identity] == 0 {
		t.Errorf("the pod that has the volume now has admitted %v, the former one had %v", got, admitted)
	}
	now := c.index("demo")
	if now.Annotations[dmv1.AnnotationMemory] != memory || now.Annotations[dmv1.AnnotationIndexIncarnation] != "" {
		t.Errorf("the index is not what it was: %v", now.Annotations)
	}
	config := &corev1.ConfigMap{}
	c.eventually("clients get the new address", func() string {
		if err := c.get("demo-config", config); err != nil {
			return err.Error()
		}
		if text := config.Data["index.json"]; !strings.Contains(text, `"control": "demo-memory-1024.`) || strings.Contains(text, `"control": "demo-memory-0.`) {
			return text
		}
		return ""
	})
	if said := c.operator.said(0); !strings.Contains(said, "VolumeMoved") || strings.Contains(said, "FailedOver") {
		t.Errorf("events: %s", said)
	}
}

// TestJoinedVolumeMoves: the home of an index, which tells clients where servers are that joined,
// hears of the pod that such a server's volume has moved to.
func TestJoinedVolumeMoves(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.grow("demo", 3)
	c.condition("demo", dmv1.ConditionProgressing, metav1.ConditionFalse, dmv1.ReasonAsDesired, "")
	home, identity := string(c.pod("demo-memory-0").UID), c.index("demo").Status.Identity
	pool := &dmv1.DMMemoryPool{}
	c.patch("demo-memory", pool, func() { pool.Annotations[dmv1.AnnotationMove] = "demo-memory-2" })
	at := func(pod string) string { return pod + ".demo-memory." + c.namespace + ".svc:7471" }
	c.equal("the addresses", []string{at("demo-memory-1024"), at("demo-memory-2")}, func() any { return c.fleet.JoinedAt(home, identity, 3) })
	c.equal("the pods", []string{"demo-memory-0 none", "demo-memory-1 none", "demo-memory-1024 primary"}, func() any { return c.rolesOf("demo-memory") })
	c.available("demo")
	c.settled("demo")
}
