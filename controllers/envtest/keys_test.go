package envtest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// showingKeys is a manifest of an index whose status and events show keys.
func showingKeys(manifest string) string {
	return strings.Replace(manifest, "spec:", "spec:\n  security: {showKeys: true}", 1)
}

// TestKeysAreHidden: status, conditions and events show no keys, but digests, unless the index says
// that keys may be shown.
func TestKeysAreHidden(t *testing.T) {
	t.Parallel()
	const key = "customer"
	c := newCluster(t)
	c.fleet.SetRanges(c.namespace, "demo-compute-1",
		&rpcv1.OwnedRange{Start: []byte(key), Epoch: 3, State: "Taking", Reason: `keys ["customer", end): no memory`, PoolFull: true})
	c.start(0)
	c.create(index, "demo")
	c.condition("demo", dmv1.ConditionDegraded, metav1.ConditionTrue, dmv1.ReasonPoolFull, ", end) are not served, since the index has no memory left")
	var status dmv1.DMIndexStatus
	c.eventually("a map in the status", func() string { // the condition may be there before it
		if status = c.index("demo").Status; status.Map == nil {
			return "there is none"
		}
		return ""
	})
	text, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), key) {
		t.Errorf("the status shows a key: %s", text)
	}
	ranges := status.Map.Ranges
	if len(ranges) < 2 || slices.ContainsFunc(ranges, func(r dmv1.PartitionRange) bool { return r.Start != "" }) ||
		ranges[0].Digest != "" || len(ranges[1].Digest) != 16 {
		t.Errorf("ranges %+v", ranges)
	}
}
