package envtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiconfig "github.com/dmindex/dmindex/api/config"
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
	used := func(when string) {
		t.Helper()
		for _, name := range []string{"demo-memory-0", "demo-memory-1"} {
			if p := c.pod(name); p.Annotations[dmv1.AnnotationUsed] == "" {
				t.Errorf("%s %s does not know that its disk is used", name, when)
			}
		}
	}
	used("of an index that is served")
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
	used("that came back")
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

// TestDisksKeptTwice: a pool on disks gets a second copy of each volume while its index is served.
// All pods are deleted at once: they come back with their claims, and the index goes on with its
// data. Without its pod and with another copy a volume is served; with copies: 1 the claims of
// second copies go.
func TestDisksKeptTwice(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(persistent, "demo")
	c.available("demo")
	incarnation := c.index("demo").Status.MemoryServers[0].Incarnation
	pool := &dmv1.DMMemoryPool{}
	c.patch("demo-memory", pool, func() { pool.Spec.Copies = 2 })
	roles := func(want string) { // which ones they are depends on who is deleted first
		t.Helper()
		c.equal("the pods", want, func() any {
			text := fmt.Sprint(c.rolesOf("demo-memory"))
			return fmt.Sprint(strings.Count(text, " primary"), strings.Count(text, " backup"), len(c.pods("demo-memory")))
		})
	}
	roles("2 2 4")
	c.equal("the budget", "4 IfHealthyBudget", func() any { return c.budget("demo-memory") })
	claims, was := c.claims("demo-memory"), map[string]types.UID{}
	if len(claims) != 4 {
		t.Fatal(claims)
	}
	for _, name := range c.pods("demo-memory") {
		was[name] = c.pod(name).UID
		c.deletePod(name)
	}
	c.eventually("memory pods are back", func() string {
		for name, uid := range was {
			if p := (&corev1.Pod{}); c.get(name, p) != nil || p.UID == uid || p.Status.PodIP == "" {
				return name
			}
		}
		return ""
	})
	roles("2 2 4")
	c.available("demo")
	c.condition("demo", dmv1.ConditionDataLost, metav1.ConditionFalse, dmv1.ReasonIntact, "")
	if now := c.claims("demo-memory"); fmt.Sprint(now) != fmt.Sprint(claims) || c.index("demo").Status.MemoryServers[0].Incarnation != incarnation {
		t.Errorf("claims %v, which were %v; the index has %v, and its first server was %s", now, claims, c.index("demo").Status.MemoryServers, incarnation)
	}
	c.loseDisk(pool)
	roles("2 2 4")
	c.available("demo")
	c.condition("demo", dmv1.ConditionDataLost, metav1.ConditionFalse, dmv1.ReasonIntact, "")
	if now := c.index("demo").Status.MemoryServers[0].Incarnation; now != incarnation {
		t.Errorf("the first server has incarnation %s, which was %s", now, incarnation)
	}
	c.patch("demo-memory", pool, func() { pool.Spec.Copies = 1 })
	roles("2 0 2")
	c.equal("claims", fmt.Sprint(c.pods("demo-memory")), func() any { return slices.Sorted(maps.Keys(c.claims("demo-memory"))) })
	c.equal("the budget", "1 AlwaysAllow", func() any { return c.budget("demo-memory") })
	c.available("demo")
}

// loseDisk ends both processes of the first volume of a pool, whose primary never gets its claim
// back.
func (c *cluster) loseDisk(pool *dmv1.DMMemoryPool) {
	c.t.Helper()
	var v dmv1.VolumeStatus
	c.eventually("the volume is in sync", func() string {
		if err := c.get(pool.Name, pool); err != nil {
			return err.Error()
		}
		v = pool.Status.Volumes[0]
		if v.State == "InSync" {
			return ""
		}
		return v.Message
	})
	c.startable.Store(false)
	both := []string{v.Primary, v.Backup}
	for _, name := range both { // at once, for the operator
		c.fleet.SetAway(c.namespace, name, true)
	}
	for _, name := range both {
		c.deletePod(name)
	}
	claim := &corev1.PersistentVolumeClaim{}
	c.patch(v.Primary, claim, func() { claim.Finalizers = nil })
	if err := api.Delete(c.t.Context(), claim); err != nil {
		c.t.Fatal(err)
	}
	c.fleet.SetAway(c.namespace, v.Backup, false)
	c.startable.Store(true)
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

// mayLack makes the server of a pod end at each start, since it does not open its disk.
func (c *cluster) mayLack(name string) {
	c.t.Helper()
	c.fleet.SetAway(c.namespace, name, true)
	c.podStatus(name, func(s *corev1.PodStatus) {
		server := corev1.ContainerStatus{Name: dmv1.ComponentMemory, RestartCount: 2}
		server.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 20s"}
		server.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "starts\ndmindex: Stop all, then " + apiconfig.PersistMayLack + "; or\n"}
		s.ContainerStatuses = []corev1.ContainerStatus{server}
	})
}

// TestLossIsAcceptedOnce: a server that does not open its disk, since that may lack something, is
// told to once somebody accepts that, and is told so no more when it answers: neither its container
// nor a later pod of its name, until the name was removed and set again.
func TestLossIsAcceptedOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(persistent, "demo")
	c.available("demo")
	const name = "demo-memory-1"
	says := func(text string) {
		t.Helper()
		c.equal("what the pool says of "+text, true, func() any {
			pool := &dmv1.DMMemoryPool{}
			if err := c.get("demo-memory", pool); err != nil {
				return err
			}
			ready := apimeta.FindStatusCondition(pool.Status.Conditions, dmv1.ConditionPoolReady)
			if ready.Reason == dmv1.ReasonDiskMayLack && strings.Contains(ready.Message, text) {
				return true
			}
			return ready
		})
	}
	accept := func(pods string) {
		t.Helper()
		pool := &dmv1.DMMemoryPool{}
		c.patch("demo-memory", pool, func() {
			if delete(pool.Annotations, dmv1.AnnotationAcceptLoss); pods != "" {
				metav1.SetMetaDataAnnotation(&pool.ObjectMeta, dmv1.AnnotationAcceptLoss, pods)
			}
		})
	}
	// the pod, what it is told, and what is noted of its claim
	state := func() (uid types.UID, told string) {
		p, claim := &corev1.Pod{}, &corev1.PersistentVolumeClaim{}
		if err := errors.Join(c.get(name, p), c.get(name, claim)); err != nil {
			return "", err.Error()
		}
		return p.UID, fmt.Sprintf("%q %q", p.Annotations[dmv1.AnnotationAcceptLoss], claim.Annotations[dmv1.AnnotationLossAccepted])
	}
	is := func(told string) {
		t.Helper()
		c.equal("what "+name+" is told", told, func() any { _, told := state(); return told })
	}

	c.mayLack(name)
	says(dmv1.AnnotationAcceptLoss + "=POD")
	c.condition("demo", dmv1.ConditionProgressing, metav1.ConditionTrue, dmv1.ReasonDiskMayLack, name)
	was, told := state()
	if told != `"" ""` {
		t.Fatalf("%s is told %s, and nobody accepted anything", name, told)
	}
	accept(name)
	is(`"true" ""`)
	if now, _ := state(); now == was {
		t.Error("the pod waits until its container is started again")
	}
	c.fleet.SetAway(c.namespace, name, false)
	is(`"" "true"`)
	c.equal("the event", true, func() any { return strings.Contains(c.operator.said(0), "LossAccepted") })
	c.available("demo")

	c.mayLack(name)
	says("remove the name first")
	was, _ = state()
	accept("")
	is(`"" ""`)
	if now, _ := state(); now != was {
		t.Error("a name that has counted counts again")
	}
	accept(name)
	is(`"true" ""`)
	c.fleet.SetAway(c.namespace, name, false)
	is(`"" "true"`)
}
