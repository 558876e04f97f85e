package envtest

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	serverconfig "github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/pkg/identity"
)

// required is what the memory servers of a pool read of who must come under TLS.
func (c *cluster) required(pool string) string {
	c.t.Helper()
	secret := &corev1.Secret{}
	if err := c.get(pool+"-tls", secret); err != nil {
		c.t.Fatal(err)
	}
	return string(secret.Data[identity.FabricFile])
}

// overTLS is how many compute pods reach their memory under TLS only, and how many do not.
func (c *cluster) overTLS(pool string) (yes, no int) {
	c.t.Helper()
	pods := &corev1.PodList{}
	if err := api.List(c.t.Context(), pods, client.InNamespace(c.namespace), client.MatchingLabels{dmv1.LabelPool: pool}); err != nil {
		c.t.Fatal(err)
	}
	for _, p := range pods.Items {
		has := false
		for _, e := range p.Spec.Containers[0].Env {
			has = has || e.Name == serverconfig.EnvFabricTLS && e.Value == "true"
		}
		if has {
			yes++
		} else {
			no++
		}
	}
	return yes, no
}

// TestFabricTLS: an index with fabricTLS is under TLS from its first server on. One that gets it
// later is replaced server by server, and connections in the clear are refused to it when none is
// left that would need one; and the other way round.
func TestFabricTLS(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(strings.Replace(index, "  design: DEX", "  design: DEX\n  security: {fabricTLS: true}", 1), "safe")
	c.available("safe")
	uri := func(name string) string { return identity.Index(string(c.index(name).UID)).String() + "\n" }
	if yes, no := c.overTLS("safe-compute"); yes != 2 || no != 0 {
		t.Errorf("%d compute servers are under TLS, %d are not", yes, no)
	}
	if got := c.required("safe-memory"); got != uri("safe") {
		t.Errorf("memory servers require TLS of %q", got)
	}

	c.create(index, "demo")
	c.available("demo")
	if yes, _ := c.overTLS("demo-compute"); yes != 0 || c.required("demo-memory") != "" {
		t.Error("an index without fabricTLS has it")
	}
	i := &dmv1.DMIndex{}
	c.patch("demo", i, func() { i.Spec.Security.FabricTLS = true })
	c.eventually("all servers are under TLS, and nothing else is let in", func() string {
		required := c.required("demo-memory") // before the pods
		yes, no := c.overTLS("demo-compute")
		switch {
		case required != "" && no > 0:
			t.Errorf("connections in the clear are refused while %d compute servers need them", no)
		case required == uri("demo") && yes == 2:
			return ""
		}
		return required
	})
	c.available("demo")
	c.patch("demo", i, func() { i.Spec.Security.FabricTLS = false })
	c.eventually("no server is under TLS", func() string {
		if yes, no := c.overTLS("demo-compute"); yes > 0 || no != 2 || c.required("demo-memory") != "" {
			return "not yet"
		}
		return ""
	})
	c.settled("demo")
}

// TestFabricTLSNeedsServers: an index whose memory servers have no TLS says which, and what to do.
func TestFabricTLSNeedsServers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.fleet.Older = true
	c.start(0)
	c.create(strings.Replace(index, "  design: DEX", "  design: DEX\n  security: {fabricTLS: true}", 1), "demo")
	c.condition("demo", dmv1.ConditionAvailable, metav1.ConditionFalse, dmv1.ReasonTransportMismatch,
		"memory pod demo-memory-0 runs version fake, which has no TLS on its fabric: set image of memory pool demo-memory")
}
