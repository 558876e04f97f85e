package envtest

import (
	"fmt"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// TestTwoReleases: the operator of a second release that watches a namespace leaves it to the first
// one, says so with both names, and takes it over when the first is gone and its Lease too.
func TestTwoReleases(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.holder = "dmindex-system/dmindex"
	c.start(0)
	c.create(index, "demo")
	c.available("demo")

	second := &cluster{t: t, namespace: c.namespace, fleet: c.fleet, holder: "bank/two"}
	t.Cleanup(func() {
		if second.operator != nil {
			second.stop()
		}
	})
	second.start(0)
	want := "release dmindex of namespace dmindex-system looks after namespace " + c.namespace + ", and release two of namespace bank watches it as well"
	second.eventually("the second says why it does nothing", func() string {
		said := second.operator.said(0)
		for _, object := range []string{`"kind":"DMIndex"`, `"kind":"DMMemoryPool"`, `"kind":"DMComputePool"`} {
			if !strings.Contains(said, object) || !strings.Contains(said, want) || !strings.Contains(said, dmv1.ReasonOtherRelease) {
				return said
			}
		}
		return ""
	})
	c.scale("demo-compute", 3)
	c.create(index, "late")
	c.available("late") // Leases are renewed now and then, so the first never comes to rest
	if n := second.operator.writes.Load(); n > 0 {
		t.Errorf("the second wrote:\n%s", second.operator.wrote(0))
	}
	if strings.Contains(c.operator.said(0), dmv1.ReasonOtherRelease) {
		t.Error("the first takes the second for the one that works there")
	}

	// The first goes on at once when it is started anew.
	c.stop()
	c.start(0)
	c.scale("demo-compute", 2)
	c.available("demo")
	if n := second.operator.writes.Load(); n > 0 {
		t.Errorf("the second wrote while the first was started anew:\n%s", second.operator.wrote(0))
	}

	c.stop()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "dmindex-operator"}}
	c.delete(lease)
	c.eventually("the second takes over", func() string {
		if err := c.get(lease.Name, lease); err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != second.holder {
			return fmt.Sprint(err, lease.Spec)
		}
		return ""
	})
	c.scale("demo-compute", 3)
	c.eventually("it works", func() string {
		if n := len(c.pods("demo-compute")); n != 3 {
			return fmt.Sprint(n, " compute pods")
		}
		return ""
	})
}
