package build

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// TestKeepMemoryPod: a pod stays on a node that is not heard of, and programs that choose pods to
// end leave it alone, unless its template or who released it says otherwise.
func TestKeepMemoryPod(t *testing.T) {
	exists := func(key string, seconds ...int64) corev1.Toleration {
		t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
		if len(seconds) > 0 {
			t.TolerationSeconds = &seconds[0]
		}
		return t
	}
	short := func(list []corev1.Toleration) (text string) {
		for _, t := range list {
			text += fmt.Sprintf("%s:%s", strings.TrimPrefix(t.Key, "node.kubernetes.io/"), t.Effect)
			if t.TolerationSeconds != nil {
				text += fmt.Sprintf("=%d", *t.TolerationSeconds)
			}
			text += " "
		}
		return text
	}
	notReady, unreachable := corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable
	f := func(what string, has, template []corev1.Toleration, want string) {
		t.Helper()
		pool := &dmv1.DMMemoryPool{}
		pool.Spec.Pod.Tolerations = template
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}, Spec: corev1.PodSpec{Tolerations: has}}
		for range 2 { // again: nothing more
			KeepMemoryPod(p, pool, "", false)
			if got := short(p.Spec.Tolerations); got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
	}
	f("a new pod", nil, nil, "unreachable:NoExecute not-ready:NoExecute ")
	f("as Kubernetes makes them", []corev1.Toleration{exists(notReady, 300), exists(unreachable, 300)}, nil, "not-ready:NoExecute unreachable:NoExecute ")
	disk := corev1.Toleration{Key: "disk", Operator: corev1.TolerationOpExists}
	f("others stay", []corev1.Toleration{disk, exists(unreachable, 300)}, []corev1.Toleration{disk}, "not-ready:NoExecute disk: unreachable:NoExecute ")
	own := []corev1.Toleration{exists(unreachable, 60)}
	f("the template's own", own, own, "not-ready:NoExecute unreachable:NoExecute=60 ")
	all := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	f("all taints", all, all, ": ")
	f("only not scheduled", nil, []corev1.Toleration{{Key: unreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
		"unreachable:NoExecute not-ready:NoExecute ")

	pool := &dmv1.DMMemoryPool{}
	pool.Spec.Pod.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "false"}
	p := MemoryPod(pool, 0, "i")
	delete(p.Annotations, dmv1.AnnotationImage)
	g := func(want string, kept string, released bool) {
		t.Helper()
		KeepMemoryPod(p, pool, kept, released)
		if got := fmt.Sprint(p.Annotations, p.Labels[dmv1.LabelReleased]); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	g("map[cluster-autoscaler.kubernetes.io/safe-to-evict:false descheduler.alpha.kubernetes.io/prefer-no-eviction:true dmindex.io/kept-for:a, b karpenter.sh/do-not-disrupt:false]", "a, b", false)
	g("map[karpenter.sh/do-not-disrupt:false]true", "", true)
	g("map[cluster-autoscaler.kubernetes.io/safe-to-evict:false descheduler.alpha.kubernetes.io/prefer-no-eviction:true karpenter.sh/do-not-disrupt:false]", "", false)
}
