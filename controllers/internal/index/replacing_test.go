package index

import (
	"strings"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// TestReplacing: an index is not as desired while a compute pool was written just now, has not
// looked at what was written, or replaces pods.
func TestReplacing(t *testing.T) {
	f := func(what, want string, change func(s *scope, pool *dmv1.DMComputePool)) {
		t.Helper()
		s := withRanges()
		pool := &dmv1.DMComputePool{ObjectMeta: metav1.ObjectMeta{Name: "x-compute", Generation: 3}}
		pool.Status.ObservedGeneration = 3
		change(s, pool)
		s.computePools = append(s.computePools, pool)
		s.conditions(nil, 0)
		c := apimeta.FindStatusCondition(s.index.Status.Conditions, dmv1.ConditionProgressing)
		if want == "" && c.Reason != dmv1.ReasonAsDesired || want != "" && (c.Reason != dmv1.ReasonReplacing || !strings.Contains(c.Message, want)) {
			t.Errorf("%s: %s %q, want %q", what, c.Reason, c.Message, want)
		}
	}
	pools := func(reason string) []metav1.Condition {
		return []metav1.Condition{{Type: dmv1.ConditionPoolReady, Reason: reason, Message: "1 of 3 pods"}}
	}
	f("settled", "", func(*scope, *dmv1.DMComputePool) {})
	f("written just now: the cache may have the pool as it was", "x-compute has not acted on", func(s *scope, _ *dmv1.DMComputePool) { s.rewritten = []string{"y", "x-compute"} })
	f("another pool was written", "", func(s *scope, _ *dmv1.DMComputePool) { s.rewritten = []string{"y"} })
	f("not looked at yet", "x-compute has not acted on", func(_ *scope, pool *dmv1.DMComputePool) { pool.Status.ObservedGeneration = 2 })
	f("it replaces", "x-compute: 1 of 3 pods", func(_ *scope, pool *dmv1.DMComputePool) { pool.Status.Conditions = pools(dmv1.ReasonReplacing) })
	f("it is ready", "", func(_ *scope, pool *dmv1.DMComputePool) { pool.Status.Conditions = pools(dmv1.ReasonAsDesired) })
}
