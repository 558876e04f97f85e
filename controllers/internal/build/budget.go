package build

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// Budget lets one pod of a pool be evicted at a time. The number is an integer below that of the
// pods, so that it can always be satisfied.
func Budget(pool, namespace, component string, pods int32) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: meta(pool, namespace, selector(pool, component))}
	b.Spec = policyv1.PodDisruptionBudgetSpec{
		MinAvailable:               ptr.To(intstr.FromInt32(max(0, pods-1))),
		Selector:                   &metav1.LabelSelector{MatchLabels: selector(pool, component)},
		UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
	}
	return b
}

// MemoryBudget is the budget of a memory pool. A pool that keeps data lets no pod be evicted, well
// or not, but those that are released: these are not among its pods. It says so by minAvailable,
// since maxUnavailable does not work with pods whose owner cannot be scaled.
// pods is how many pods it is about, if they are more than the servers that the pool shall have:
// volumes may have several.
func MemoryBudget(pool *dmv1.DMMemoryPool, keeps bool, pods int) *policyv1.PodDisruptionBudget {
	all := max(pool.Spec.Servers, int32(pods))
	b := Budget(pool.Name, pool.Namespace, dmv1.ComponentMemory, all)
	b.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: dmv1.LabelReleased, Operator: metav1.LabelSelectorOpDoesNotExist}}
	if keeps {
		b.Spec.MinAvailable = ptr.To(intstr.FromInt32(all))
		b.Spec.UnhealthyPodEvictionPolicy = ptr.To(policyv1.IfHealthyBudget)
	}
	return b
}
