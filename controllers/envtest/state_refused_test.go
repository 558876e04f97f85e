package envtest

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

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
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "full", Namespace: c.namespace}}
	quota.Spec.Hard = corev1.ResourceList{"count/configmaps": resource.MustParse("0")}
	if err := api.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, quota.Spec.Hard
	if err := api.Status().Update(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
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
	if err := api.Delete(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	c.eventually("what was decided before, and the server that joins", func() string {
		if now := c.record(c.index("demo")).Data; now["memory-joined"] == "" || !strings.Contains(want, now["memory"]) {
			return fmt.Sprint(now)
		}
		return ""
	})
}
