//go:build e2e

package e2e

import (
	"strings"
	"testing"
)

// TestRefused: wrong objects and forbidden changes are refused at kubectl apply, with a sentence
// that says what to write. (The whole table is in controllers/envtest.)
func TestRefused(t *testing.T) {
	s := newSpace(t)
	f := func(old, new, want string) {
		t.Helper()
		if !strings.Contains(indexManifest, old) {
			t.Fatalf("%q is not in the manifest", old)
		}
		s.refused(strings.Replace(indexManifest, old, new, 1), want)
	}
	f("design: DEX", "design: BTree", `Unsupported value: "BTree": supported values: "DEX", "Sherman", "SMART", "CHIME", "Dolphin"`)
	f("design: DEX", "design: DEX\n  nodeSize: 512", "nodeSize is too small for keys and values of these lengths")
	f("  durability: Memory\n", "", "spec.durability: Required value")
	f("durability: Memory", "durability: Disk", `supported values: "Memory", "Replicated", "Persistent"`)
	f("durability: Memory", "durability: Persistent", "durability: Persistent needs disks: write persistence: {}")
	f("{type: Bytes, maxLength: 64}", "{type: Bytes}", "keys of type Bytes need maxLength: write how many bytes")
	f("{type: Bytes, maxLength: 64}", "{type: Uint64, maxLength: 9}", "keys of type Uint64 have 8 bytes: leave maxLength out")
	f("maxLength: 128", "maxLength: 5000", "should be less than or equal to 4096")
	f("name: x", "name: 1x", "first a letter")
	f("memory: 128Mi", "memory: 1Mi", "memory must be within 16Mi and 16Ti: write how much")
	f("memory: 128Mi", "memory: 128Mi, chunkSize: 3Mi", "chunkSize must be a power of two")
	f("memory: 128Mi", "memory: 128Mi, transport: UDP", `supported values: "TCP", "RDMA"`)
	f("template: {servers: 2, memory: 128Mi}", "ref: {name: shared}", "a pool by ref needs quota: write how much memory")
	f(", template: {replicas: 2, minReplicas: 1, maxReplicas: 4}", "", "write exactly one of template")
	f("minReplicas: 1", "minReplicas: 3", "replicas is below minReplicas")
	f("spec:\n", "spec:\n  replicas: 3\n", `unknown field "spec.replicas"`)

	// An index that is there.
	s.apply(indexManifest)
	s.settled("2/2", "2/2")
	f("maxLength: 64", "maxLength: 65", "key cannot be changed: make a new DMIndex and restore a dump")
	f("maxLength: 128", "maxLength: 64", "value cannot be changed")
	f("servers: 2", "servers: 1", "servers can only be raised")
	f("memory: 128Mi", "memory: 256Mi", "memory cannot be changed")
	f("name: memory", "name: other", "memoryPools cannot be added, removed, renamed or reordered")
	f("spec:\n", "spec:\n  nodeSize: 2048\n", "nodeSize cannot be changed")
	for replicas, want := range map[string]string{"5": "replicas is above maxReplicas: write at most maxReplicas", "0": "replicas"} {
		out, err := s.try("scale", "dmcp", "x-compute", "--replicas="+replicas)
		s.fails(out, err, want)
	}
	s.settled("2/2", "2/2") // nothing of this disturbed it
}
