package build

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
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
