package envtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// index is a good DMIndex; the tests break it.
const index = `
apiVersion: dmindex.io/v1alpha1
kind: DMIndex
metadata: {name: NAME, namespace: default}
spec:
  design: DEX
  durability: Memory
  key: {type: Bytes, maxLength: 64}
  value: {maxLength: 128}
  nodeSize: 1024
  memoryPools:
  - {name: memory, template: {servers: 2, memory: 512Mi}}
  computePools:
  - {name: compute, template: {replicas: 2}}
`

const computePool = `
apiVersion: dmindex.io/v1alpha1
kind: DMComputePool
metadata: {name: NAME, namespace: default}
spec: {indexName: demo, replicas: 2, minReplicas: 1, maxReplicas: 4}
`

const memoryPool = `
apiVersion: dmindex.io/v1alpha1
kind: DMMemoryPool
metadata: {name: NAME, namespace: default}
spec: {servers: 2, memory: 512Mi}
`

func parse(t *testing.T, text, name string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "NAME", name)), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestRefusedAtCreation: wrong objects are refused, with a sentence that says what to write.
func TestRefusedAtCreation(t *testing.T) {
	n := 0
	f := func(text, old, new, want string) {
		t.Helper()
		n++
		if !strings.Contains(text, old) {
			t.Fatalf("%q is not in the object", old)
		}
		err := api.Create(t.Context(), parse(t, strings.Replace(text, old, new, 1), fmt.Sprintf("wrong-%d", n)))
		if err == nil {
			t.Errorf("%s -> %s was accepted; want %q", old, new, want)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s -> %s: %v; want %q", old, new, err, want)
		}
	}
	f(index, "servers: 2, memory: 512Mi}}", "servers: 2, memory: 512Mi, transport: RDMA}}\n  security: {fabricTLS: true}", "security.fabricTLS is for transport TCP")
	for pool, at := range map[string]string{memoryPool: "memory: 512Mi", computePool: "replicas: 2"} {
		f(pool, at, at+", spread: {}", "write zones, racks, or both")
		f(pool, at, at+", spread: {zones: Always}", `supported values: "Preferred", "Required"`)
		f(pool, at, at+", spread: {racks: Required}", "racks needs rackLabel")
		f(pool, at, at+", spread: {zones: Required, rackLabel: a}", "racks needs rackLabel")
		f(pool, at, at+", spread: {zones: Required}, pod: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway}]}", "write one of them")
	}
	external := "an external name is a DNS name in lower case, such as index.example.com, or an IP address, without a port"
	for _, bad := range []string{"demo.example.com:6379", "Demo.example.com", "a..b", "-a", "a.*.b", "https://a"} {
		f(index, "design: DEX", fmt.Sprintf("design: DEX\n  endpoints: {externalNames: [%q]}", bad), external)
	}
	f(index, "design: DEX", "design: DEX\n  endpoints: {service: {type: ExternalName}}", `supported values: "ClusterIP", "NodePort", "LoadBalancer"`)
	f(index, "design: DEX", "design: DEX\n  endpoints: {resp: {tls: {mode: Always}}}", `supported values: "Off", "Optional", "Required"`)
	f(index, "design: DEX", "design: DEX\n  endpoints: {resp: {tls: {secretName: mine}}}", "resp.tls.secretName is for mode Required or Optional")
	f(index, "design: DEX", "design: DEX\n  log: {level: loud}", `supported values: "debug", "info", "warn", "error"`)
	f(index, "design: DEX", "design: DEX\n  log: {format: xml}", `supported values: "text", "json"`)
	f(index, "design: DEX", "design: BTree", `Unsupported value: "BTree": supported values: "DEX", "Sherman", "SMART", "CHIME", "Dolphin"`)
	for _, design := range []string{"SMART", "CHIME", "Dolphin"} {
		f(index, "design: DEX", "design: "+design, "nodeSize is for DEX and Sherman")
	}
	tooSmall := "nodeSize is too small for keys and values of these lengths: leave it out, or write at least"
	f(index, "nodeSize: 1024", "nodeSize: 640", tooSmall)
	f(index, "maxLength: 128}\n  nodeSize: 1024", "maxLength: 257}\n  nodeSize: 448", tooSmall)
	f(index, "{type: Bytes, maxLength: 64}\n  value: {maxLength: 128}\n  nodeSize: 1024", "{type: Uint64}\n  value: {maxLength: 256}\n  nodeSize: 576", tooSmall)
	f(index, "{type: Bytes, maxLength: 64}\n  value: {maxLength: 128}\n  nodeSize: 1024", "{type: Bytes, maxLength: 200}\n  value: {maxLength: 4096}\n  nodeSize: 1280", tooSmall)
	f(index, "replicas: 2", "replicas: 2, cache: 512Ki", "cache must be within 1Mi and 4Ti: write how much memory")
	f(index, "  durability: Memory\n", "", "spec.durability: Required value")
	f(index, "durability: Memory", "durability: Eternal", `supported values: "Memory", "Replicated", "Persistent"`)
	f(index, "durability: Memory", "durability: Persistent", "durability: Persistent needs disks: write persistence: {}")
	f(persistent, "durability: Persistent", "durability: Replicated", "durability: Replicated is for memory pools without persistence")
	f(strings.Replace(index, "durability: Memory", "durability: Replicated", 1), "memory: 512Mi", "memory: 512Mi, transport: RDMA", "durability: Replicated is for transport TCP")
	f(memoryPool, "memory: 512Mi", "memory: 512Mi, transport: RDMA, copies: 2", "two copies are for pools with transport TCP")
	f(memoryPool, "memory: 512Mi", "memory: 512Mi, transport: RDMA, persistence: {}", "persistence is for pools with transport TCP")
	f(memoryPool, "memory: 512Mi", "memory: 512Mi, persistence: {sync: Never}", `supported values: "Always", "5ms", "Off"`)
	f(memoryPool, "memory: 512Mi", "memory: 512Mi, persistence: {size: 2Gi}", "persistence.size is too small: write at least 4 times memory and 256Mi")
	f(index, "{type: Bytes, maxLength: 64}", "{type: Bytes}", "keys of type Bytes need maxLength: write how many bytes")
	f(index, "{type: Bytes, maxLength: 64}", "{type: Uint64, maxLength: 9}", "keys of type Uint64 have 8 bytes: leave maxLength out")
	f(index, "{type: Bytes, maxLength: 64}", "{type: Bytes, maxLength: 1025}", "should be less than or equal to 1024")
	f(index, "{type: Bytes, maxLength: 64}", "{type: Text, maxLength: 64}", `supported values: "Uint64", "Bytes"`)
	f(index, "maxLength: 128", "maxLength: 4097", "should be less than or equal to 4096")
	f(index, "maxLength: 128}\n  nodeSize: 1024", "maxLength: 120}\n  nodeSize: 704\n  expiry: Enabled", tooSmall)
	f(index, "nodeSize: 1024", "expiry: Always", "supported values: \"Enabled\", \"Disabled\"")
	f(index, "nodeSize: 1024", "nodeSize: 1000", "nodeSize must be a multiple of 64")
	f(index, "name: NAME", "name: has.dots", "metadata.name names pods and Services too")
	f(index, "name: NAME", "name: 1digit", "first a letter")
	f(index, "name: NAME", "name: "+strings.Repeat("a", 31), "at most 30 characters")
	f(index, "servers: 2", "servers: 0", "should be greater than or equal to 1")
	f(index, "memory: 512Mi", "memory: 1Mi", "memory must be within 16Mi and 16Ti")
	f(index, "memory: 512Mi", "memory: 512Mi, chunkSize: 3Mi", "chunkSize must be a power of two")
	f(index, "memory: 512Mi", "memory: 64Mi, chunkSize: 64Mi", "write at least two times chunkSize")
	f(index, "memory: 512Mi", "memory: 512Mi, transport: UDP", `supported values: "TCP", "RDMA"`)
	f(index, "memory: 512Mi", "memory: 512Mi, rdma: {}", "rdma is for pools with transport: RDMA")
	f(index, "memory: 512Mi", "memory: 512Mi, transport: RDMA, rdma: {hugePages: 4Mi}", `supported values: "2Mi", "1Gi"`)
	f(index, "memory: 512Mi", "memory: 512Mi, transport: RDMA, rdma: {hugePages: 1Gi}", "write a multiple of rdma.hugePages")
	f(index, "memory: 512Mi", "memory: 512Mi, transport: RDMA, rdma: {resource: rdma/a, resourceClaimTemplateName: b}", "write one of rdma.resource")
	f(index, "memory: 512Mi", "memory: 512Mi, transport: RDMA, rdma: {resource: cpu}", "should match")
	f(index, "replicas: 2", "replicas: 2, rdma: {device: mlx5_0}", "rdma is for pools with transport: RDMA")
	f(index, "{name: memory, template", "{name: memory, locks: 6, template", "locks must be a multiple of 4")
	f(memoryPool, "memory: 512Mi", "memory: 512Mi, pod: {resources: {limits: {memory: 512Mi}}}", "write at least memory + 256Mi, or leave it out")
	f(index, "- {name: memory, template: {servers: 2, memory: 512Mi}}", "- {name: memory, quota: 1Gi}", "write exactly one of template")
	f(index, "- {name: memory, template: {servers: 2, memory: 512Mi}}", "- {name: memory, ref: {name: a}, quota: 1Gi, template: {servers: 2, memory: 512Mi}}", "write exactly one of template")
	f(index, "- {name: memory, template: {servers: 2, memory: 512Mi}}", "- {name: memory, ref: {name: shared}}", "a pool by ref needs quota: write how much memory")
	f(index, "- {name: memory, template: {servers: 2, memory: 512Mi}}", "- {name: a, ref: {name: a}, quota: 1Gi}\n  - {name: a, ref: {name: b}, quota: 1Gi}", "Duplicate value")
	f(index, "- {name: compute, template: {replicas: 2}}", "- {name: compute}", "write exactly one of template")
	f(index, "replicas: 2", "replicas: 2, minReplicas: 3", "replicas is below minReplicas")
	f(index, "replicas: 2", "replicas: 2, maxReplicas: 1", "replicas is above maxReplicas")
	f(index, "replicas: 2", "replicas: 2, autoscaling: {operationsPerSecond: 1000}", "autoscaling needs maxReplicas: write how many servers there may be")
	f(index, "replicas: 2", "replicas: 2, maxReplicas: 4, autoscaling: {}", "autoscaling needs a target: write operationsPerSecond, cacheMissPercent, or both")
	f(index, "replicas: 2", "replicas: 2, maxReplicas: 4, autoscaling: {cacheMissPercent: 100}", "should be less than or equal to 99")
	f(index, "replicas: 2", "replicas: 2, maxReplicas: 4, autoscaling: {cacheMissPercent: 10, scaleUp: {stabilizationWindowSeconds: 3601}}", "should be less than or equal to 3600")
	f(index, "spec:", "spec:\n  partitioning: {rebalance: {policy: Always}}", `supported values: "OnSkew", "Never"`)
	f(index, "spec:", "spec:\n  partitioning: {rebalance: {maxLoadPercent: 110}}", "should be greater than or equal to 120")
	f(index, "spec:", "spec:\n  partitioning: {rebalance: {minIntervalSeconds: 1}}", "should be greater than or equal to 10")
	f(strings.Replace(index, "{type: Bytes, maxLength: 64}", "{type: Uint64}", 1), "spec:", "spec:\n  partitioning: {atomicPrefix: ':'}", "partitioning.atomicPrefix is for keys of type Bytes")
	f(index, "spec:", "spec:\n  partitioning: {atomicPrefix: 'é'}", "spec.partitioning.atomicPrefix in body should match")
	f(index, "spec:", "spec:\n  partitioning: {routing: Best}", `supported values: "Any", "Owner"`)
	const reserved = "of dmindex.io/ are the operator's: write another prefix"
	f(index, "replicas: 2", `replicas: 2, pod: {annotations: {dmindex.io/leaving: "now"}}`, reserved)
	f(memoryPool, "memory: 512Mi", `memory: 512Mi, pod: {labels: {a: b, dmindex.io/released: "true"}}`, reserved)
	f(index, "design: DEX", "design: DEX\n  endpoints: {service: {annotations: {dmindex.io/applied: a}}}", reserved)
	const environment = "DMINDEX_... and GOMEMLIMIT are the operator's"
	f(index, "replicas: 2", "replicas: 2, pod: {env: [{name: DMINDEX_PERSIST_ACCEPT_LOSS, value: 'true'}]}", environment)
	f(memoryPool, "memory: 512Mi", "memory: 512Mi, pod: {env: [{name: A, value: b}, {name: GOMEMLIMIT, value: 1GiB}]}", environment)
	f(index, "spec:", "spec:\n  recovery: {onDataLoss: Ignore}", `supported values: "Block", "Recreate"`)
	f(computePool, "replicas: 2", "replicas: 5", "write at most maxReplicas")
	f(computePool, "name: NAME", "name: "+strings.Repeat("a", 51), "at most 50 characters")
	f(memoryPool, "servers: 2", "servers: 65", "should be less than or equal to 64")
}

// TestLimitsOfDEX: what lies just within the limits is accepted. DEX is the default.
func TestLimitsOfDEX(t *testing.T) {
	f := func(old, new string) {
		t.Helper()
		if !strings.Contains(index, old) {
			t.Fatalf("%q is not in the object", old)
		}
		object := parse(t, strings.Replace(index, old, new, 1), fmt.Sprintf("limit-%d", namespaces.Add(1)))
		if err := api.Create(t.Context(), object); err != nil {
			t.Errorf("%s -> %s: %v", old, new, err)
		}
		if design, _, _ := unstructured.NestedString(object.Object, "spec", "design"); design != "DEX" && !strings.Contains(new, "design: Sherman") {
			t.Errorf("%s -> %s: the design is %q", old, new, design)
		}
	}
	keyAndValue := "{type: Bytes, maxLength: 64}\n  value: {maxLength: 128}\n  nodeSize: 1024\n"
	f("  design: DEX\n", "")
	f("maxLength: 64", "maxLength: 1")
	f(keyAndValue, "{type: Bytes, maxLength: 1024}\n  value: {maxLength: 4096}\n")
	f(keyAndValue, "{type: Uint64}\n  value: {maxLength: 4096}\n")
	f(keyAndValue, "{type: Bytes, maxLength: 64}\n  value: {maxLength: 128}\n  nodeSize: 768\n")
	f(keyAndValue, "{type: Bytes, maxLength: 64}\n  value: {maxLength: 4096}\n  nodeSize: 512\n")
	f(keyAndValue, "{type: Uint64}\n  value: {maxLength: 256}\n  nodeSize: 640\n")
	f(keyAndValue, "{type: Bytes, maxLength: 64}\n  value: {maxLength: 120}\n  nodeSize: 704\n  expiry: Disabled\n")
	f(keyAndValue, "{type: Uint64}\n  value: {maxLength: 256}\n  nodeSize: 256\n  expiry: Enabled\n")
	f(keyAndValue, "{type: Uint64}\n  value: {maxLength: 4096}\n  nodeSize: 256\n")
	f("design: DEX\n  durability: Memory\n  key: {type: Bytes, maxLength: 64}\n  value: {maxLength: 128}", "design: Sherman\n  durability: Memory\n  key: {type: Bytes, maxLength: 7}\n  value: {maxLength: 4096}")
}

// TestRefusedAsChange: what cannot be changed says what to do instead.
func TestRefusedAsChange(t *testing.T) {
	f := func(text, old, new, want string) {
		t.Helper()
		name := fmt.Sprintf("fixed-%d", namespaces.Add(1))
		object := parse(t, text, name)
		if err := api.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text, old) {
			t.Fatalf("%q is not in the object", old)
		}
		changed := parse(t, strings.Replace(text, old, new, 1), name)
		changed.SetResourceVersion(object.GetResourceVersion())
		err := api.Update(t.Context(), changed)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s -> %s: %v", old, new, err)
		case want != "" && err == nil:
			t.Errorf("%s -> %s was accepted; want %q", old, new, want)
		case want != "" && !strings.Contains(err.Error(), want):
			t.Errorf("%s -> %s: %v; want %q", old, new, err, want)
		}
	}
	f(index, "design: DEX", "design: Sherman", "design cannot be changed: make a new DMIndex and restore a dump")
	f(index, "  design: DEX\n", "", "")
	f(index, "maxLength: 64", "maxLength: 65", "key cannot be changed: make a new DMIndex and restore a dump")
	f(index, "{type: Bytes, maxLength: 64}", "{type: Uint64}", "key cannot be changed")
	f(index, "maxLength: 128", "maxLength: 64", "value cannot be changed")
	f(index, "nodeSize: 1024", "nodeSize: 2048", "nodeSize cannot be changed")
	f(index, "  nodeSize: 1024\n", "", "nodeSize cannot be changed")
	f(index, "nodeSize: 1024", "nodeSize: 1024\n  expiry: Enabled", "expiry cannot be changed")
	f(index, "name: memory", "name: other", "memoryPools cannot be added, removed, renamed or reordered")
	f(index, "  computePools:", "  - {name: more, template: {servers: 1, memory: 1Gi}}\n  computePools:", "memoryPools cannot be added")
	f(index, "name: compute", "name: other", "computePools cannot be added")
	f(index, "servers: 2", "servers: 1", "servers can only be raised")
	f(index, "servers: 2", "servers: 3", "")
	f(index, "memory: 512Mi", "memory: 0.5Gi", "")
	f(index, "memory: 512Mi", "memory: 1Gi", "memory cannot be changed")
	f(index, "memory: 512Mi", "memory: 512Mi, chunkSize: 4Mi", "chunkSize cannot be changed")
	f(memoryPool, "memory: 512Mi", "memory: 512Mi, transport: RDMA", "transport cannot be changed: make a new pool")
	f(memoryPool, "memory: 512Mi", "memory: 512Mi, persistence: {}", "persistence cannot be added or removed")
	f(onDisks, ", persistence: {storageClassName: fast, size: 3Gi}", "", "persistence cannot be added or removed")
	f(onDisks, "storageClassName: fast", "storageClassName: slow", "persistence.storageClassName cannot be changed")
	f(onDisks, "storageClassName: fast, ", "", "persistence.storageClassName cannot be changed")
	f(onDisks, "size: 3Gi", "size: 2560Mi", "persistence.size can only be raised")
	f(onDisks, "size: 3Gi", "size: 4Gi, sync: 5ms", "")
	f(computePool, "replicas: 2", "replicas: 2, transport: RDMA, rdma: {hugePages: 2Mi}", "")
	f(index, "spec:", "spec:\n  partitioning: {routing: Owner}", "partitioning.routing cannot be changed")
	f(index, "spec:", "spec:\n  partitioning: {atomicPrefix: '}'}", "partitioning.atomicPrefix cannot be changed")
	f(index, "spec:", "spec:\n  paused: true\n  image: other\n  recovery: {onDataLoss: Recreate}", "")
	f(index, "spec:", "spec:\n  image: other", "")
	f(computePool, "indexName: demo", "indexName: other", "indexName cannot be changed")
	f(memoryPool, "servers: 2", "servers: 1", "servers can only be raised")
}

// TestScaleBounds: minReplicas and maxReplicas hold for the scale subresource too.
func TestScaleBounds(t *testing.T) {
	pool := parse(t, computePool, fmt.Sprintf("scaled-%d", namespaces.Add(1)))
	if err := api.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	f := func(replicas int32, want string) {
		t.Helper()
		scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
		err := api.SubResource("scale").Update(t.Context(), pool, client.WithSubResourceBody(scale))
		switch {
		case want == "" && err != nil:
			t.Errorf("scale to %d: %v", replicas, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("scale to %d: %v; want %q", replicas, err, want)
		}
	}
	f(4, "")
	f(5, "replicas is above maxReplicas: write at most maxReplicas")
	f(0, "replicas")
	f(1, "")
}

// TestCRDsAreSmall: client-side apply writes the whole CRD, as JSON, into an annotation, and those
// of an object may have 256 KiB. Half of that leaves room for what other tools add.
func TestCRDsAreSmall(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "crd", "zz_generated_*.yaml"))
	if err != nil || len(files) != 6 {
		t.Fatalf("CRDs: %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		written, err := yaml.YAMLToJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		if len(written) >= 128<<10 {
			t.Errorf("%s has %d bytes as JSON; keep it below 128 KiB", file, len(written))
		}
	}
}

// TestSamplesAreGood: everything in config/samples is accepted.
func TestSamplesAreGood(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "samples", "dmindex_*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("samples: %v, %v", files, err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("samples-%d", namespaces.Add(1))}}
	if err := api.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range strings.Split(string(data), "\n---\n") {
			u := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict([]byte(document), &u.Object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			u.SetNamespace(namespace.Name)
			err := api.Create(t.Context(), u, client.FieldValidation("Strict"))
			if err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	indexes := &dmv1.DMIndexList{}
	if err := api.List(t.Context(), indexes, client.InNamespace(namespace.Name)); err != nil || len(indexes.Items) == 0 {
		t.Errorf("%d indexes, %v", len(indexes.Items), err)
	}
}
