package index

import (
	"cmp"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// The cause that keeps a pod from running is known at the pod, or where the pod was to be made.
// People look at the index. So a pool says what its pods say, in its condition PoolReady, and an
// index what its pools say, with the same reason and the name of the pool.

// troubles are the reasons of conditions that do not go away by themselves: somebody has to change
// something. An index that has one is Degraded by it, and an event tells when it comes.
var troubles = map[string]bool{
	dmv1.ReasonClaimMissing:      true,
	dmv1.ReasonDiskMayLack:       true,
	dmv1.ReasonIDsExhausted:      true,
	dmv1.ReasonImageUnavailable:  true,
	dmv1.ReasonMemoryPending:     true,
	dmv1.ReasonNameTaken:         true,
	dmv1.ReasonNoRDMAImage:       true,
	dmv1.ReasonNodeUnfit:         true,
	dmv1.ReasonPatchRefused:      true,
	dmv1.ReasonPodFailing:        true,
	dmv1.ReasonPodRefused:        true,
	dmv1.ReasonPoolMissing:       true,
	dmv1.ReasonPoolRefused:       true,
	dmv1.ReasonQuotaRefused:      true,
	dmv1.ReasonRestoreFailed:     true,
	dmv1.ReasonTransportMismatch: true,
	dmv1.ReasonUnschedulable:     true,
	dmv1.ReasonWaitingForBackup:  true,
}

// poolTrouble is what the pools of an index say that does not go away by itself; nil = nothing.
func (s *scope) poolTrouble() *shortage {
	t := &shortage{}
	var texts []string
	for _, p := range s.memoryPools {
		if p.pool != nil {
			texts = t.add(texts, "memory pool "+p.pool.Name, apimeta.FindStatusCondition(p.pool.Status.Conditions, dmv1.ConditionPoolReady))
		}
	}
	for _, pool := range s.computePools {
		texts = t.add(texts, "compute pool "+pool.Name, apimeta.FindStatusCondition(pool.Status.Conditions, dmv1.ConditionPoolReady))
	}
	if len(texts) == 0 {
		return nil
	}
	t.message = strings.Join(texts, "; ")
	return t
}

// add appends what the condition of a pool says, if it is trouble. The reason is that of the first.
func (t *shortage) add(texts []string, pool string, c *metav1.Condition) []string {
	if c == nil || !troubles[c.Reason] {
		return texts
	}
	t.reason = cmp.Or(t.reason, c.Reason)
	return append(texts, pool+": "+c.Message)
}
