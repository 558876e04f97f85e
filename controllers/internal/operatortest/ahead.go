package operatortest

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Ahead is how far the clock was ahead in tests of that.
const Ahead = 70 * 24 * time.Hour

// Stored is when the API server stored what was written then.
var Stored = Noon.Add(-time.Hour)

// AheadPod is a pod that was written to while clocks were ahead.
func AheadPod(annotation string) *corev1.Pod {
	p := Pod("pool-0", 0)
	p.Spec.Containers = []corev1.Container{{Image: "b"}}
	p.Annotations = map[string]string{annotation: Stored.Add(Ahead).Format(time.RFC3339)}
	p.CreationTimestamp = metav1.NewTime(Stored)
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(Stored.Add(Ahead))}}
	return p
}
