package build

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// The content of a memory pod ends with the pod, so nothing may end one that a person did not ask
// for. Kubernetes ends pods in several ways, and each has its own means against it:
//
//   - the node controller, minutes after a node went silent: tolerations without a limit. Pods of a
//     node that is gone for good go with its Node object;
//   - the eviction API (drains, the autoscalers, the descheduler): MemoryBudget;
//   - autoscalers that choose which nodes to empty: annotations;
//   - the kubelet, when its node is short of disk: a request for it (of memory, requests equal
//     limits);
//   - people, the scheduler and, on behalf of all other taints, the taint eviction controller: the
//     chart's ValidatingAdmissionPolicies.

// keepAnnotations tell programs that choose which pods to end that a memory pod is none of them.
var keepAnnotations = map[string]string{
	"cluster-autoscaler.kubernetes.io/safe-to-evict":     "false",
	"karpenter.sh/do-not-disrupt":                        "true",
	"descheduler.alpha.kubernetes.io/prefer-no-eviction": "true",
}

// silentNode are the taints of a node that is not heard of. Others, as out-of-service, are set by
// people who know that the node is gone.
var silentNode = []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}

// stay are tolerations with which a pod stays on a node that is not heard of, made of those that it
// has. What the template says of these taints holds instead. Kubernetes lets the tolerations of a
// running pod grow, in number and in time.
func stay(has, template []corev1.Toleration) []corev1.Toleration {
	has = slices.Clone(has)
	for _, taint := range silentNode {
		if slices.ContainsFunc(template, func(t corev1.Toleration) bool { return evenIf(t, taint) }) {
			continue
		}
		there := false
		for i := range has {
			if has[i].Key == taint && evenIf(has[i], taint) {
				has[i].TolerationSeconds, there = nil, true
			}
		}
		if !there { // in front: the first that matches counts
			has = slices.Insert(has, 0, corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
		}
	}
	return has
}

// evenIf reports whether a pod with this toleration stays, for some time or for ever, on a node
// with a taint that ends pods and has no value.
func evenIf(t corev1.Toleration, taint string) bool {
	switch {
	case t.Effect != "" && t.Effect != corev1.TaintEffectNoExecute:
		return false
	case t.Operator == corev1.TolerationOpExists:
		return t.Key == "" || t.Key == taint
	}
	return t.Key == taint && t.Value == ""
}

// KeepMemoryPod makes a memory pod, a new one or one that runs, such that it is kept: keptFor are
// the indexes whose data would be lost with it, released reports whether somebody released it
// nevertheless.
func KeepMemoryPod(p *corev1.Pod, pool *dmv1.DMMemoryPool, keptFor string, released bool) {
	p.Spec.Tolerations = stay(p.Spec.Tolerations, pool.Spec.Pod.Tolerations)
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	annotations := maps.Clone(keepAnnotations)
	for key := range annotations {
		if given, there := pool.Spec.Pod.Annotations[key]; there {
			annotations[key] = given
		} else if released {
			delete(annotations, key)
			delete(p.Annotations, key)
		}
	}
	maps.Copy(p.Annotations, annotations)
	set(p.Annotations, dmv1.AnnotationKeptFor, keptFor)
	yes := ""
	if released {
		yes = "true"
	}
	set(p.Labels, dmv1.LabelReleased, yes)
}

// set sets a value; an empty one is removed.
func set(values map[string]string, key, value string) {
	if value == "" {
		delete(values, key)
	} else {
		values[key] = value
	}
}

// logBytes is what a server takes of its node's disk: its log, which kubelets rotate at 10 MiB and
// keep five times. All else that it writes is in memory.
var logBytes = resource.MustParse("64Mi")
