package envtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opconfig "github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/pkg/identity"
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

// TestKeptTwice: a pool gets a second copy of each volume while its index is served, and its
// servers the certificates and the policy for that. A pod that goes loses nothing. With copies: 1
// the second copies go.
func TestKeptTwice(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.policies = "dmindex-system"
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	pool, incarnation := &dmv1.DMMemoryPool{}, c.index("demo").Status.MemoryServers[0].Incarnation
	c.patch("demo-memory", pool, func() { pool.Spec.Copies = 2 })
	c.equal("the pods", []string{"demo-memory-0 primary", "demo-memory-1 primary", "demo-memory-1024 backup", "demo-memory-1025 backup"}, func() any { return c.rolesOf("demo-memory") })
	secret := &corev1.Secret{}
	if err := c.get(build.ServerTLSName("demo-memory"), secret); err != nil {
		t.Fatal(err)
	}
	cert, err := pki.Parse(secret.Data[corev1.TLSCertKey])
	if err != nil {
		t.Fatal(err)
	}
	if who, err := identity.FromCertificate(cert); err != nil || who.URI().String() != identity.Memory(string(pool.UID)).String() || len(cert.ExtKeyUsage) != 2 {
		t.Errorf("the servers' certificate says %v, %v, for %v", who, err, cert.ExtKeyUsage)
	}
	policy := &networkingv1.NetworkPolicy{}
	if err := c.get("demo-memory", policy); err != nil || !strings.Contains(fmt.Sprint(policy.Spec.Ingress), fmt.Sprint(opconfig.PortMirror)) {
		t.Errorf("the policy %v, %v", policy.Spec.Ingress, err)
	}
	c.condition("demo", dmv1.ConditionAvailable, metav1.ConditionTrue, dmv1.ReasonServing, "")

	primary := c.pod("demo-memory-0")
	if err := api.Delete(t.Context(), primary, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	c.equal("the pods", []string{"demo-memory-1 primary", "demo-memory-1024 primary", "demo-memory-1025 backup", "demo-memory-1026 backup"}, func() any { return c.rolesOf("demo-memory") })
	c.available("demo")
	c.condition("demo", dmv1.ConditionDataLost, metav1.ConditionFalse, "", "")
	if now := c.index("demo").Status.MemoryServers[0]; now.Incarnation != incarnation || now.Pod != "demo-memory-1024" {
		t.Errorf("the index's first memory server is %v, its incarnation was %s", now, incarnation)
	}
	c.patch("demo-memory", pool, func() { pool.Spec.Copies = 1 })
	c.equal("the pods", []string{"demo-memory-1 primary", "demo-memory-1024 primary"}, func() any { return c.rolesOf("demo-memory") })
	c.available("demo")
}

// TestReplicated: an index with durability Replicated holds the copies of its memory pool at two,
// whatever the pool says, and says that it is Replicated once there are two of all that it has.
func TestReplicated(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	if is := c.index("demo").Status.Durability; is != dmv1.DurabilityMemory {
		t.Errorf("the durability in force is %q", is)
	}
	c.fleet.HoldBack(true)
	now := &dmv1.DMIndex{}
	c.patch("demo", now, func() { now.Spec.Durability = dmv1.DurabilityReplicated })
	c.condition("demo", dmv1.ConditionDegraded, metav1.ConditionTrue, dmv1.ReasonCopyMissing, "no copy in sync of memory server 1 (pod demo-memory-0), memory server 2 (pod demo-memory-1)")
	c.fleet.HoldBack(false)
	inForce := func() any { return c.index("demo").Status.Durability }
	c.equal("the durability in force", dmv1.DurabilityReplicated, inForce)
	c.condition("demo", dmv1.ConditionDegraded, metav1.ConditionFalse, "", "")
	c.patch("demo", now, func() { now.Spec.Durability = dmv1.DurabilityMemory })
	c.equal("the pods", []string{"demo-memory-0 primary", "demo-memory-1 primary"}, func() any { return c.rolesOf("demo-memory") })
	c.equal("the durability in force", dmv1.DurabilityMemory, inForce)
}
