//go:build e2e

package e2e

import (
	"strings"
	"testing"
)

// TestRefused: wrong objects and forbidden changes are refused at kubectl apply, with a sentence
// that says what to write. (The whole table is in controllers/envtest; here are examples.)
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
	f("spec:\n", "spec:\n  replicas: 3\n", `unknown field "spec.replicas"`)

	// An index that is there: its pods need not be.
	s.apply(indexManifest)
	f("maxLength: 64", "maxLength: 65", "key cannot be changed: make a new DMIndex and restore a dump")
	f("servers: 2", "servers: 1", "servers can only be raised")
	s.eventually(long, "the pool is there", func() (bool, string) {
		found := s.jsonpath("dmcp/x-compute", "{.spec.replicas}")
		return found == "2", found
	})
	out, err := s.try("scale", "dmcp", "x-compute", "--replicas=5")
	s.fails(out, err, "replicas is above maxReplicas: write at most maxReplicas")
}
