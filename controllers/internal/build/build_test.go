package build

import (
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/memserver"
)

func testIndex() *dmv1.DMIndex {
	i := &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "ns", UID: "uid"}}
	i.Spec.Design, i.Spec.Durability = dmv1.DesignSherman, dmv1.DurabilityMemory
	i.Spec.Key = dmv1.KeySpec{Type: dmv1.KeyBytes, MaxLength: ptr.To(int32(64))}
	i.Spec.Value.MaxLength, i.Spec.Expiry = 128, dmv1.ExpiryEnabled
	i.Spec.MemoryPools = []dmv1.IndexMemoryPool{{Name: "memory", Template: &dmv1.MemoryPoolTemplate{
		MemoryServers: dmv1.MemoryServers{Servers: 2, Memory: resource.MustParse("512Mi")}}}}
	i.Spec.ComputePools = []dmv1.IndexComputePool{{Name: "compute", Template: &dmv1.ComputePoolTemplate{
		ComputeServers: dmv1.ComputeServers{Replicas: 2, Pod: dmv1.PodTemplate{
			Labels:       map[string]string{"team": "a", dmv1.LabelPool: "not ours to change"},
			Annotations:  map[string]string{"note": "b"},
			NodeSelector: map[string]string{"disk": "none"},
			Resources:    dmv1.Resources{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")}},
		}}}}}
	return i
}

// testTLS is a TLS Secret with each kind of authority.
func testTLS(index *dmv1.DMIndex, memory *dmv1.DMMemoryPool) (*corev1.Secret, error) {
	ca := func(content string) *pki.Authority {
		return &pki.Authority{PEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(content)})}
	}
	index.UID = "uid"
	s, err := TLSSecret("demo-memory", "ns", dmv1.ComponentMemory, pki.Pair{Cert: []byte("c"), Key: []byte("k")}, slices.Concat(
		OperatorSpeaks(ca("pool")), IndexSpeaks(index, ca("index")), OwnSpeaks(index, ca("own")), MemorySpeaks(memory, ca("pool"))))
	if err == nil {
		s.Data[config.KeySaltFile] = []byte("salt")
	}
	return s, err
}

// serverOnNode is the pod of a memory server, made with other credentials than the pool has.
func serverOnNode(pool *dmv1.DMMemoryPool) *corev1.Pod {
	p := MemoryPod(pool, 3, "server:0")
	p.Spec.NodeName, p.Spec.ImagePullSecrets = "node-1", []corev1.LocalObjectReference{{Name: "its-own"}}
	p.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
	return p
}

// TestGolden compares what is built with testdata. DMINDEX_REWRITE=1 writes it anew.
func TestGolden(t *testing.T) {
	index := testIndex()
	memory := MemoryPool(index, index.Spec.MemoryPools[0], "server:1")
	compute := ComputePool(index, index.Spec.ComputePools[0], "server:1")
	configMap, err := ConfigMap(index, IndexConfig(index, "uid/1", []config.MemoryServer{
		{ID: 1, Control: Control("demo-memory-0", "demo-memory", "ns"), Incarnation: 7, Pod: "demo-memory-0"}}))
	if err != nil {
		t.Fatal(err)
	}
	secret, err := testTLS(index, memory)
	if err != nil {
		t.Fatal(err)
	}
	rdmaMemory, rdmaCompute := testRDMA(memory, compute)
	for name, object := range map[string]any{
		"rdma_memory_pod":         MemoryPod(rdmaMemory, 3, "rdma:1"),
		"rdma_compute_pod":        ComputePod(rdmaCompute, 1, 3, "uid/1", "rdma:1", "hash"),
		"memory_pool":             memory,
		"compute_pool":            compute,
		"memory_pod":              MemoryPod(memory, 3, "server:1"),
		"memory_copy":             MemoryCopy(memory, 1024, 3, "server:1", nil),
		"memory_budget_of_copies": MemoryBudget(memory, true, 4),
		"image_probe":             ImageProbe(memory, serverOnNode(memory), 3, "server:1"),
		"compute_pod":             ComputePod(compute, 1, 3, "uid/1", "server:1", "hash"),
		"headless":                Headless("demo-memory", "ns", dmv1.ComponentMemory),
		"client_service":          ClientService(index),
		"budget":                  Budget("demo-compute", "ns", dmv1.ComponentCompute, 2),
		"memory_budget":           MemoryBudget(memory, false, 0),
		"memory_budget_of_data":   MemoryBudget(memory, true, 0),
		"memory_policy":           NetworkPolicy("demo-memory", "ns", dmv1.ComponentMemory, "dmindex-system"),
		"mirror_policy":           LetMirror(NetworkPolicy("demo-memory", "ns", dmv1.ComponentMemory, "dmindex-system")),
		"compute_policy":          NetworkPolicy("demo-compute", "ns", dmv1.ComponentCompute, "dmindex-system"),
		"config_map":              configMap,
		"connection":              ConnectionSecret(index, []byte("secret"), []byte("ca")),
		"tls":                     secret,
		"authority":               AuthoritySecret("demo", "ns", map[string]string{dmv1.LabelIndex: "demo"}, pki.Pair{Cert: []byte("c"), Key: []byte("k")}),
		"leaf_of_memory":          MemoryLeaf(memory, false),
		"leaf_of_copies":          MemoryLeaf(memory, true),
		"leaf_of_compute":         ComputeLeaf(compute, index, "uid/1").DNS,
	} {
		got, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name+".yaml")
		if os.Getenv("DMINDEX_REWRITE") != "" {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s is now:\n%s\nif that is right, run the test with DMINDEX_REWRITE=1", file, got)
		}
	}
}

// TestCache: the size of the cache reaches the server, and the pod asks for memory for it unless it
// is told how much to ask for.
func TestCache(t *testing.T) {
	index := testIndex()
	pool := ComputePool(index, index.Spec.ComputePools[0], "i")
	f := func(cache, requests, wantArg, wantMemory string) {
		t.Helper()
		pool.Spec.Cache, pool.Spec.Pod.Resources = nil, dmv1.Resources{}
		if cache != "" {
			pool.Spec.Cache = ptr.To(resource.MustParse(cache))
		}
		if requests != "" {
			pool.Spec.Pod.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(requests)}
		}
		c := ComputePod(pool, 0, 0, "uid", "i", "h").Spec.Containers[0]
		if got := c.Resources.Requests[corev1.ResourceMemory]; !got.Equal(resource.MustParse(wantMemory)) {
			t.Errorf("cache %q: the pod requests %s", cache, got.String())
		}
		if is := slices.Contains(c.Args, wantArg); is != (wantArg != "") {
			t.Errorf("cache %q: %v", cache, c.Args)
		}
	}
	f("", "", "", "256Mi")
	f("1Gi", "", "--cache=1073741824", "2304Mi")
	f("1Gi", "3Gi", "--cache=1073741824", "3Gi")
}

// TestHeapLimit: the heap of a memory server may become as large as its container's limit less its
// volumes, and no smaller than it needs to be to run at all.
func TestHeapLimit(t *testing.T) {
	index := testIndex()
	pool := MemoryPool(index, index.Spec.MemoryPools[0], "i")
	f := func(limit string, want int64) {
		t.Helper()
		pool.Spec.Pod.Resources = dmv1.Resources{}
		if limit != "" {
			pool.Spec.Pod.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)}
		}
		c := MemoryPod(pool, 0, "i").Spec.Containers[0]
		env := []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: fmt.Sprint(want)}, {Name: config.EnvMirror, Value: fmt.Sprintf(":%d", config.PortMirror)}}
		if got, want := fmt.Sprint(c.Env), fmt.Sprint(env); got != want {
			t.Errorf("limit %q: %s, want %s", limit, got, want)
		}
	}
	f("", 336<<20)
	f("2Gi", 1440<<20) // of which 576 MiB are in the volume
	f("600Mi", leastHeap)
}

// TestComputeLimit: a compute server is limited to its request and what its clients take at most,
// and its heap to a little less. What the template says holds instead.
func TestComputeLimit(t *testing.T) {
	index := testIndex()
	pool := ComputePool(index, index.Spec.ComputePools[0], "i")
	pool.Spec.Cache = ptr.To(resource.MustParse("64Mi"))
	f := func(requests, limits, wantRequest, wantLimit string, wantHeap int64) {
		t.Helper()
		list := func(memory string) corev1.ResourceList {
			if memory == "" {
				return nil
			}
			return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
		}
		pool.Spec.Pod.Resources = dmv1.Resources{Requests: list(requests), Limits: list(limits)}
		c := ComputePod(pool, 0, 0, "uid", "i", "h").Spec.Containers[0]
		request, limit := c.Resources.Requests[corev1.ResourceMemory], c.Resources.Limits[corev1.ResourceMemory]
		if !request.Equal(resource.MustParse(wantRequest)) || !limit.Equal(resource.MustParse(wantLimit)) {
			t.Errorf("%q, %q: requests %s and is limited to %s, want %s, %s", requests, limits, request.String(), limit.String(), wantRequest, wantLimit)
		}
		if want := (corev1.EnvVar{Name: "GOMEMLIMIT", Value: fmt.Sprint(wantHeap)}); !slices.Contains(c.Env, want) {
			t.Errorf("%q, %q: %v, want %v", requests, limits, c.Env, want)
		}
	}
	const clients = 10_000*64<<10 + 256<<20
	f("", "", "384Mi", fmt.Sprint(384<<20+clients+64<<20), 384<<20+clients)
	f("3Gi", "", "3Gi", "3Gi", 3008<<20)
	f("100Mi", "1Gi", "100Mi", "1Gi", 960<<20)
	f("", "128Mi", "128Mi", "128Mi", leastHeap)
	pool.Spec.Transport, pool.Spec.RDMA = dmv1.TransportRDMA, &dmv1.RDMASpec{}
	f("", "", "1152Mi", "1152Mi", 1088<<20)
	c := ComputePod(pool, 0, 0, "uid", "i", "h").Spec.Containers[0]
	if _, limited := c.Resources.Limits[corev1.ResourceEphemeralStorage]; limited {
		t.Error("a pod with RDMA would be ended for a long log")
	}
}

// TestRequestAboveDefaultLimit: a memory pod that requests more than its default limit is limited
// to that: Kubernetes refuses requests above limits.
func TestRequestAboveDefaultLimit(t *testing.T) {
	index := testIndex()
	pool := MemoryPool(index, index.Spec.MemoryPools[0], "i")
	pool.Spec.Pod.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}
	r := MemoryPod(pool, 0, "i").Spec.Containers[0].Resources
	if limit := r.Limits[corev1.ResourceMemory]; !limit.Equal(resource.MustParse("2Gi")) {
		t.Errorf("the limit is %s", limit.String())
	}
}

// TestMachineArgs: the arguments of small pods with RDMA, for machines without Kubernetes, stand in
// testdata. DMINDEX_REWRITE=1 writes them anew.
func TestMachineArgs(t *testing.T) {
	memory := &dmv1.DMMemoryPool{ObjectMeta: metav1.ObjectMeta{Name: "demo-memory", Namespace: "ns"}}
	memory.Spec.MemoryServers = dmv1.MemoryServers{Servers: 1, Memory: resource.MustParse("64Mi"), ChunkSize: ptr.To(resource.MustParse("1Mi")),
		Transport: dmv1.TransportRDMA, RDMA: &dmv1.RDMASpec{HugePages: "2Mi"}}
	slow := memory.DeepCopy()
	slow.Spec.Transport, slow.Spec.RDMA = dmv1.TransportTCP, nil
	compute := &dmv1.DMComputePool{ObjectMeta: metav1.ObjectMeta{Name: "demo-compute", Namespace: "ns"}}
	compute.Spec.ComputeServers = dmv1.ComputeServers{Replicas: 1, Transport: dmv1.TransportRDMA}
	for name, p := range map[string]*corev1.Pod{
		"memory": MemoryPod(memory, 0, "i"), "slow": MemoryPod(slow, 0, "i"), "compute": ComputePod(compute, 0, 0, "uid", "i", "h"),
	} {
		got, file := strings.Join(p.Spec.Containers[0].Args, "\n")+"\n", filepath.Join("testdata", "machine_"+name+".args")
		if os.Getenv("DMINDEX_REWRITE") != "" {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(file); err != nil || string(want) != got {
			t.Errorf("%s should be:\n%s%v; if that is right, run the test with DMINDEX_REWRITE=1", file, got, err)
		}
	}
}

// testRDMA are pools as these, with RDMA: the memory pool with huge pages, of our plugin, the
// compute pool by DRA.
func testRDMA(memory *dmv1.DMMemoryPool, compute *dmv1.DMComputePool) (*dmv1.DMMemoryPool, *dmv1.DMComputePool) {
	memory, compute = memory.DeepCopy(), compute.DeepCopy()
	memory.Spec.Transport, compute.Spec.Transport = dmv1.TransportRDMA, dmv1.TransportRDMA
	memory.Spec.RDMA = &dmv1.RDMASpec{HugePages: "2Mi", Networks: "fabric"}
	compute.Spec.RDMA = &dmv1.RDMASpec{ResourceClaimTemplateName: "hca", Device: "mlx5_1"}
	return memory, compute
}

// TestRDMAPods: they are of Guaranteed QoS whatever the template says, get their device once, have
// no capability but IPC_LOCK, and keep what else the restricted level asks for.
func TestRDMAPods(t *testing.T) {
	index := testIndex()
	memory, compute := testRDMA(MemoryPool(index, index.Spec.MemoryPools[0], "i"), ComputePool(index, index.Spec.ComputePools[0], "i"))
	f := func(p *corev1.Pod, device string, huge string) {
		t.Helper()
		c := p.Spec.Containers[0]
		s := c.SecurityContext
		if *p.Spec.SecurityContext.RunAsUser != 0 || fmt.Sprint(s.Capabilities.Drop, s.Capabilities.Add) != "[ALL] [IPC_LOCK]" || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || s.Privileged != nil {
			t.Errorf("%s: %+v", p.Name, s)
		}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if _, ok := c.Resources.Limits[name]; !ok {
				t.Errorf("%s has no limit of %s: it is not of Guaranteed QoS", p.Name, name)
			}
		}
		got, pages := "", ""
		for name, limit := range c.Resources.Limits {
			if request := c.Resources.Requests[name]; request.Cmp(limit) != 0 {
				t.Errorf("%s requests %v and is limited to %v of %s", p.Name, &request, &limit, name)
			}
			if strings.Contains(string(name), "/") {
				got += string(name)
			}
			if strings.HasPrefix(string(name), "hugepages-") {
				pages += string(name) + "=" + limit.String()
			}
		}
		for _, claim := range c.Resources.Claims {
			if r := p.Spec.ResourceClaims[0]; r.Name == claim.Name {
				got += *r.ResourceClaimTemplateName
			}
		}
		if got != device || pages != huge {
			t.Errorf("%s gets %s and %s, want %s and %s", p.Name, got, pages, device, huge)
		}
	}
	f(MemoryPod(memory, 0, "i"), "dmindex.io/rdma", "hugepages-2Mi=514Mi")
	f(ComputePod(compute, 0, 0, "uid", "i", "h"), "hca", "")
	memory.Spec.RDMA, compute.Spec.RDMA = nil, &dmv1.RDMASpec{Resource: "rdma/hca_shared_devices_a", HugePages: "1Gi"}
	f(MemoryPod(memory, 0, "i"), "dmindex.io/rdma", "")
	f(ComputePod(compute, 0, 0, "uid", "i", "h"), "rdma/hca_shared_devices_a", "hugepages-1Gi=1Gi")
	memory.Spec.Pod.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}
	f(MemoryPod(memory, 0, "i"), "dmindex.io/rdma", "")
	if cpu := MemoryPod(memory, 0, "i").Spec.Containers[0].Resources.Limits[corev1.ResourceCPU]; cpu.String() != "3" {
		t.Errorf("cpu is %v", &cpu)
	}
}

// TestRestricted: pods comply with the restricted Pod Security level, and carry no token.
func TestRestricted(t *testing.T) {
	index := testIndex()
	for _, p := range []*corev1.Pod{
		MemoryPod(MemoryPool(index, index.Spec.MemoryPools[0], "i"), 0, "i"),
		ComputePod(ComputePool(index, index.Spec.ComputePools[0], "i"), 0, 0, "uid", "i", "h"),
	} {
		s, c := p.Spec, p.Spec.Containers[0]
		if *s.AutomountServiceAccountToken || !*s.SecurityContext.RunAsNonRoot || *s.SecurityContext.RunAsUser == 0 ||
			s.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || s.HostNetwork || s.HostPID || s.HostIPC {
			t.Errorf("%s: %+v", p.Name, s.SecurityContext)
		}
		if *c.SecurityContext.AllowPrivilegeEscalation || !*c.SecurityContext.ReadOnlyRootFilesystem || len(c.SecurityContext.Capabilities.Drop) != 1 ||
			len(c.SecurityContext.Capabilities.Add) != 0 {
			t.Errorf("%s: %+v", p.Name, c.SecurityContext)
		}
		for _, v := range s.Volumes {
			if v.HostPath != nil {
				t.Errorf("%s: volume %s is of the host", p.Name, v.Name)
			}
		}
		if p.Labels[dmv1.LabelPool] == "not ours to change" {
			t.Errorf("%s: a template changed the pod's pool", p.Name)
		}
	}
}

// TestServerIDs: the numbers of memory servers are within 1 to 32767, are never used twice, and
// lead back to their pods.
func TestServerIDs(t *testing.T) {
	seen := map[uint16]bool{}
	for ordinal := range 31 {
		for pod := range MaxVolume + 1 {
			id := MemoryServerID(ordinal, pod)
			if id == 0 || id >= 1<<15 || seen[id] {
				t.Fatalf("pool %d pod %d has server id %d", ordinal, pod, id)
			}
			seen[id] = true
			if o, p := MemoryServerVolume(id); o != ordinal || p != pod {
				t.Fatalf("server id %d leads to pool %d pod %d, not %d and %d", id, o, p, ordinal, pod)
			}
		}
	}
}

// TestNamesFit: the longest names that the CRDs allow make host names of at most 63 bytes.
func TestNamesFit(t *testing.T) {
	pool := PoolName(strings.Repeat("i", 30), strings.Repeat("p", 16))
	for _, name := range []string{PodName(pool, MaxVolume), PodName(strings.Repeat("p", 50), 1_000_000), AuthorityName(pool), ServerTLSName(pool)} {
		if len(name) > 63 {
			t.Errorf("%s has %d bytes", name, len(name))
		}
	}
}

// TestBudget: a budget can always be satisfied.
func TestBudget(t *testing.T) {
	f := func(pods int32, want int) {
		t.Helper()
		if got := Budget("p", "ns", "c", pods).Spec.MinAvailable.IntValue(); got != want {
			t.Errorf("%d pods: %d", pods, got)
		}
	}
	f(1, 0)
	f(2, 1)
	f(64, 63)
}

// TestTwoLedgersFit: a new ledger is written beside the old one, beside the lock table, in what the
// volume of a memory server has besides the region.
func TestTwoLedgersFit(t *testing.T) {
	if rest := volumeHeadroom - memserver.DefaultLockTableBytes - 2*memserver.DefaultLedgerBytes; rest < 1<<20 || lockTableBytes != memserver.DefaultLockTableBytes {
		t.Errorf("%d bytes are left for other files", rest)
	}
}
