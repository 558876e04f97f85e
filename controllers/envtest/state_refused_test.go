package envtest

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// fillQuota leaves no room for more objects of a kind in the namespace.
func (c *cluster) fillQuota(of corev1.ResourceName) *corev1.ResourceQuota {
	c.t.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "full", Namespace: c.namespace}}
	quota.Spec.Hard = corev1.ResourceList{of: resource.MustParse("0")}
	if err := api.Create(c.t.Context(), quota); err != nil {
		c.t.Fatal(err)
	}
	quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, quota.Spec.Hard
	if err := api.Status().Update(c.t.Context(), quota); err != nil {
		c.t.Fatal(err)
	}
	return quota
}

// TestNoRoomForARecord: an index whose record cannot be made is repaired all the same, and nothing
// more is decided about it.
func TestNoRoomForARecord(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.lookAgain("demo")
	want, i := c.state(c.index("demo")), &dmv1.DMIndex{}
	home := string(c.pod("demo-memory-0").UID)
	c.fleet.Register(home, string(c.index("demo").UID), "demo-compute-1")
	c.stop()
	quota := c.fillQuota("count/configmaps")
	c.deleteRecord(c.index("demo"))
	c.patch("demo", i, func() { i.Spec.MemoryPools[0].Template.Servers++ })
	c.deletePod("demo-compute-1")
	c.start(0)
	c.condition("demo", dmv1.ConditionDegraded, metav1.ConditionTrue, "", "raise the quota of ConfigMaps")
	c.equal("fenced at the home", "[1]", func() any { return c.fleet.Fenced(home, string(i.UID)) })
	c.condition("demo", dmv1.ConditionDegraded, metav1.ConditionTrue, "", "nothing more is decided about demo before its record")
	if joined := c.index("demo").Annotations[dmv1.AnnotationJoined]; joined != "" {
		t.Errorf("a server joins: %s", joined)
	}
	c.delete(quota)
	c.eventually("what was decided before, and the server that joins", func() string {
		if now := c.record(c.index("demo")).Data; now["memory-joined"] == "" || !strings.Contains(want, now["memory"]) {
			return fmt.Sprint(now)
		}
		return ""
	})
}

// TestNoRoomForRecordsOfPools: pools whose records cannot be made replace lost servers, renew
// certificates and say why they are not as they should be; of one of which nothing is known the
// certificates are renewed.
func TestNoRoomForRecordsOfPools(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.create(memoryPool, "spare")
	c.available("demo")
	c.memoryPoolReady("spare", dmv1.ReasonAsDesired, "")
	c.lookAgain("demo")
	c.stop()
	quota := c.fillQuota("count/configmaps")
	compute := &dmv1.DMComputePool{}
	if err := c.get("demo-compute", compute); err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{compute, c.memoryPool("spare"), c.memoryPool("demo-memory")} {
		c.deleteRecord(object)
	}
	c.deletePod("demo-compute-1")
	c.deletePod("spare-0")
	damaged := &dmv1.DMMemoryPool{}
	c.patch("demo-memory", damaged, func() { damaged.Annotations[dmv1.AnnotationNextID] = "7" })
	old := map[string]string{}
	for _, pool := range []string{"demo-compute", "demo-memory"} {
		secret := &corev1.Secret{}
		c.patch(pool+"-tls", secret, func() { old[pool] = string(secret.Data["tls.crt"]); secret.Data["tls.crt"] = []byte("x") })
	}
	c.start(0)
	c.equal("compute pods", "[demo-compute-0 demo-compute-2]", func() any { return c.pods("demo-compute") })
	c.equal("memory pods", 2, func() any { return len(c.pods("spare")) })
	c.computePoolReady("demo-compute", dmv1.ReasonPoolRefused, "raise the quota of ConfigMaps")
	c.memoryPoolReady("spare", dmv1.ReasonPoolRefused, "raise the quota of ConfigMaps")
	c.memoryPoolReady("demo-memory", dmv1.ReasonStateConflict, "neither the annotations nor the record are whole")
	for pool, was := range old {
		c.eventually("another certificate for "+pool, func() string {
			if now := c.secret(pool+"-tls", "tls.crt"); now == "x" || now == was {
				return "there is none"
			}
			return ""
		})
	}
	c.delete(quota)
	c.equal("next number in the record", "3", func() any { return c.record(compute).Data["next-id"] })
	c.available("demo")
}
