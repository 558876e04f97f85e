package index

import (
	"strings"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/pkg/partition"
)

// TestFencePending: keys that wait for a fence show as a condition that names the memory server.
func TestFencePending(t *testing.T) {
	s := &scope{index: &dmv1.DMIndex{}, verdict: memoryVerdict{servers: []memoryServer{{id: 1025, pod: "mem-0"}, {id: 1026, pod: "mem-1"}}}}
	s.view.Map = &partition.Map{}
	s.index.Spec.Security.ShowKeys = true
	described := &rpcv1.DescribeComputeReply{Ranges: []*rpcv1.OwnedRange{
		{End: []byte("m"), State: "Serving"},
		{Start: []byte("m"), State: "Acquiring", Reason: "client 7: no answer", Unfenced: 1026},
	}}
	if got := s.pendingFence(&computeServer{}); got != "" {
		t.Errorf("a server that did not answer: %q", got)
	}
	s.fencePending = s.pendingFence(&computeServer{described: described})
	s.conditions(nil, 1)
	for _, kind := range []string{dmv1.ConditionProgressing, dmv1.ConditionDegraded} {
		c := apimeta.FindStatusCondition(s.index.Status.Conditions, kind)
		if c == nil || c.Reason != dmv1.ReasonFencePending || !strings.Contains(c.Message, `["m", end)`) || !strings.Contains(c.Message, "memory server 1026 (pod mem-1)") {
			t.Errorf("%s is %+v", kind, c)
		}
	}
}
