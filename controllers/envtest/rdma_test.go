package envtest

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	serverconfig "github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

const mixed = `
apiVersion: dmindex.io/v1alpha1
kind: DMIndex
metadata: {name: NAME}
spec:
  durability: Memory
  key: {type: Uint64}
  value: {maxLength: 8}
  memoryPools:
  - {name: fast, template: {servers: 1, memory: 512Mi, transport: RDMA, rdma: {hugePages: 2Mi}}}
  - {name: slow, template: {servers: 1, memory: 512Mi}}
  computePools:
  - {name: compute, template: {replicas: 1}}
`

// TestMixedTransports: compute servers that cannot reach the memory are said so; servers that
// cannot start on their nodes say what to change there, memory and compute; then compute servers
// are told by what to reach each memory server, and the status says it.
func TestMixedTransports(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const why = "no usable RDMA device: mlx5_0/1 is not active: bring its link up"
	c.fleet.SetProblem(c.namespace, "demo-fast-0", why)
	c.fleet.SetProblem(c.namespace, "demo-compute-0", "not enough memory may be locked")
	c.start(0)
	c.create(mixed, "demo")
	c.condition("demo", dmv1.ConditionAvailable, metav1.ConditionFalse, dmv1.ReasonTransportMismatch, "compute pool demo-compute has TCP and cannot reach it: set transport: RDMA")
	c.memoryPoolReady("demo-fast", dmv1.ReasonNodeUnfit, "pod demo-fast-0 on node : "+why)
	index := &dmv1.DMIndex{}
	c.patch("demo", index, func() { index.Spec.ComputePools[0].Template.Transport = dmv1.TransportRDMA })
	c.condition("demo", dmv1.ConditionAvailable, metav1.ConditionFalse, dmv1.ReasonNodeUnfit, why)
	c.fleet.SetProblem(c.namespace, "demo-fast-0", "")
	c.condition("demo", dmv1.ConditionProgressing, metav1.ConditionTrue, dmv1.ReasonNodeUnfit, "compute pod demo-compute-0 on node : not enough memory may be locked")
	c.computePoolReady("demo-compute", dmv1.ReasonNodeUnfit, "0 of 1 compute servers are ready; pod demo-compute-0 on node : not enough memory may be locked")
	c.fleet.SetPaths(c.namespace, "demo-compute-0", &rpcv1.MemoryPath{Server: 1, Provider: "ibv", Device: "mlx5_1"}, &rpcv1.MemoryPath{Server: 1025, Provider: "tcp"})
	c.fleet.SetProblem(c.namespace, "demo-compute-0", "")
	c.available("demo")
	c.equal("transports", "[RDMA TCP]", func() any {
		var seen []dmv1.Transport
		for _, m := range c.index("demo").Status.MemoryServers {
			seen = append(seen, m.Transport)
		}
		return fmt.Sprint(seen)
	})
	c.equal("the paths of the compute server", "[{RDMA mlx5_1 1 [1]} {TCP  1 [1025]}]", func() any {
		return fmt.Sprint(c.index("demo").Status.ComputeServers[0].Paths)
	})
	c.equal("its problem", "", func() any { return c.index("demo").Status.ComputeServers[0].Problem })
	images := fmt.Sprint(c.pod("demo-fast-0").Spec.Containers[0].Image, " ", c.pod("demo-slow-0").Spec.Containers[0].Image, " ", c.pod("demo-compute-0").Spec.Containers[0].Image)
	if images != "rdma:1 server:1 rdma:1" {
		t.Errorf("images: %s", images)
	}
	cm, ix := &corev1.ConfigMap{}, serverconfig.Index{}
	if err := c.get("demo-config", cm); err != nil {
		t.Fatal(err)
	}
	for _, text := range cm.Data {
		if err := json.Unmarshal([]byte(text), &ix); err != nil {
			t.Fatal(err)
		}
	}
	if len(ix.MemoryServers) != 2 || ix.MemoryServers[0].Transport != serverconfig.TransportIBV || ix.MemoryServers[1].Transport != serverconfig.TransportTCP {
		t.Errorf("compute servers are told %+v", ix.MemoryServers)
	}
	c.settled("demo")
}

// TestRefusedByKubelet: a pod that its kubelet refuses is replaced under a new number, after a
// while.
func TestRefusedByKubelet(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.startable.Store(false)
	// by how much the operator's clock is put forward; it stands still, so that the while is not
	// over before it was seen
	var later atomic.Int64
	began := time.Now()
	c.now = func() time.Time { return began.Add(time.Duration(later.Load())) }
	c.start(0)
	pool := &dmv1.DMMemoryPool{}
	pool.Name, pool.Namespace = "pool", c.namespace
	pool.Spec.Servers, pool.Spec.Memory, pool.Spec.Transport = 1, resource.MustParse("64Mi"), dmv1.TransportRDMA
	if err := api.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	c.equal("pods", "[pool-0]", func() any { return c.pods("pool") })
	p := c.pod("pool-0")
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
	if err := api.SubResource("binding").Create(t.Context(), p, binding); err != nil {
		t.Fatal(err)
	}
	c.podStatus(p.Name, func(s *corev1.PodStatus) {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, "UnexpectedAdmissionError", "no healthy devices present"
	})
	c.memoryPoolReady("pool", dmv1.ReasonPodRefused, "the kubelet of node n1 refused pod pool-0 (UnexpectedAdmissionError): no healthy devices present; the next one is made at")
	c.startable.Store(true)
	later.Store(int64(time.Minute))
	c.equal("pods", "[pool-1]", func() any { return c.pods("pool") })
	c.memoryPoolReady("pool", dmv1.ReasonAsDesired, "all 1 memory servers answer")
	if err := api.Get(t.Context(), types.NamespacedName{Namespace: c.namespace, Name: "pool"}, pool); err != nil || pool.Status.Image != "rdma:1" {
		t.Errorf("image %s, %v", pool.Status.Image, err)
	}
}
