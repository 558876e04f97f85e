package index

import "testing"

// TestPasswordWaitsForPods: where the compute pods could not be looked at, no server is taken to
// know a password. Without pods, none has to.
func TestPasswordWaitsForPods(t *testing.T) {
	if (&scope{}).knows("user default") {
		t.Error("servers that nobody asked know an ACL file")
	}
	if !(&scope{computeSeen: true}).knows("user default") {
		t.Error("an index without compute pods waits for them")
	}
	// Nor is its authority replaced: a step that went on would need the index.
	if err := (&Reconciler{}).keepAuthority(t.Context(), &scope{}); err != nil {
		t.Error(err)
	}
}
