package envtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// mounted gives the server of a pod its disk. A pod without its claim does not start.
func (c *cluster) mounted(ctx context.Context, p *corev1.Pod) bool {
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim == nil || p.Labels[dmv1.LabelComponent] != dmv1.ComponentMemory {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		if api.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: v.PersistentVolumeClaim.ClaimName}, claim) != nil {
			return false
		}
		c.fleet.Mount(string(p.UID), string(claim.UID))
	}
	return true
}

// persistent is an index with its memory on disks.
var persistent = strings.NewReplacer("durability: Memory", "durability: Persistent", "template: {servers: 2, memory: 512Mi", "template: {persistence: {storageClassName: disks}, servers: 2, memory: 512Mi").Replace(index)

// onDisks is a pool with its memory on disks.
var onDisks = strings.Replace(memoryPool, "memory: 512Mi", "memory: 512Mi, persistence: {storageClassName: fast, size: 3Gi}", 1)

// claims are the claims of a pool, with their UIDs.
func (c *cluster) claims(pool string) map[string]types.UID {
	c.t.Helper()
	list := &corev1.PersistentVolumeClaimList{}
	if err := api.List(c.t.Context(), list, client.InNamespace(c.namespace), client.MatchingLabels{dmv1.LabelPool: pool}); err != nil {
		c.t.Fatal(err)
	}
	all := map[string]types.UID{}
	for _, claim := range list.Items {
		if claim.DeletionTimestamp == nil {
			all[claim.Name] = claim.UID
		}
	}
	return all
}

// TestPodsComeBackWithTheirClaims: all pods of an index are deleted at once. Memory pods of the
// same names come back with the same claims, and the index goes on with its data. Its pods may be
// evicted, its claims are kept.
func TestPodsComeBackWithTheirClaims(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(persistent, "demo")
	c.available("demo")
	c.equal("durability", dmv1.DurabilityPersistent, func() any { return c.index("demo").Status.Durability })
	claims := c.claims("demo-memory")
	if fmt.Sprint(slices.Sorted(maps.Keys(claims))) != "[demo-memory-0 demo-memory-1]" {
		t.Fatal(claims)
	}
	claim := &corev1.PersistentVolumeClaim{}
	if err := c.get("demo-memory-0", claim); err != nil {
		t.Fatal(err)
	}
	if size := claim.Spec.Resources.Requests[corev1.ResourceStorage]; size.String() != "3Gi" || *claim.Spec.StorageClassName != "disks" {
		t.Errorf("the claim has %+v", claim.Spec)
	}
	c.protected("demo-memory", metav1.ConditionTrue, dmv1.ReasonInUse, "data of indexes is in claims demo-memory-0 (demo), demo-memory-1 (demo)")
	c.equal("the budget", "1 AlwaysAllow", func() any { return c.budget("demo-memory") })
	c.equal("the index that a claim is kept for", "demo", func() any {
		if err := c.get("demo-memory-1", claim); err != nil {
			return err
		}
		return claim.Annotations[dmv1.AnnotationKeptFor]
	})
	if kept := c.pod("demo-memory-0").Annotations[dmv1.AnnotationKeptFor]; kept != "" {
		t.Errorf("the pod is kept for %q", kept)
	}
	c.settled("demo")
	identity := c.index("demo").Status.Identity
	was := map[string]types.UID{}
	for _, pool := range []string{"demo-memory", "demo-compute"} {
		for _, name := range c.pods(pool) {
			was[name] = c.pod(name).UID
			c.deletePod(name)
		}
	}
	c.eventually("memory pods are back", func() string {
		for _, name := range []string{"demo-memory-0", "demo-memory-1"} {
			p := &corev1.Pod{}
			if err := c.get(name, p); err != nil || p.UID == was[name] || p.Status.PodIP == "" {
				return fmt.Sprint(name, " is not back: ", err, c.pods("demo-memory"))
			}
		}
		return ""
	})
	c.available("demo")
	c.condition("demo", dmv1.ConditionDataLost, metav1.ConditionFalse, dmv1.ReasonIntact, "")
	if is := c.index("demo").Status.Identity; is != identity {
		t.Fatalf("the index is %s, and was %s", is, identity)
	}
	if now := c.claims("demo-memory"); fmt.Sprint(now) != fmt.Sprint(claims) {
		t.Fatalf("claims are %v, and were %v", now, claims)
	}
	if pods := c.pods("demo-memory"); len(pods) != 2 {
		t.Errorf("there are %v", pods)
	}
	c.settled("demo")
}

// TestDataIsLostWithItsClaim: a claim that is deleted with its pod is lost data, and its number is
// not used again.
func TestDataIsLostWithItsClaim(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(persistent, "demo")
	c.available("demo")
	c.startable.Store(false)
	claim := &corev1.PersistentVolumeClaim{}
	if err := c.get("demo-memory-1", claim); err != nil {
		t.Fatal(err)
	}
	c.deletePod("demo-memory-1")
	c.patch("demo-memory-1", claim, func() { claim.Finalizers = nil })
	c.condition("demo", dmv1.ConditionDegraded, metav1.ConditionTrue, dmv1.ReasonMemoryUnreachable, "demo-memory-1")
	if err := api.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	c.condition("demo", dmv1.ConditionDataLost, metav1.ConditionTrue, "", "demo-memory-1")
	c.equal("pods", "[demo-memory-0 demo-memory-2]", func() any { return c.pods("demo-memory") })
	c.equal("claims", "[demo-memory-0 demo-memory-2]", func() any { return slices.Sorted(maps.Keys(c.claims("demo-memory"))) })
}
