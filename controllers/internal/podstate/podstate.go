// Package podstate is what a pod of a server says of itself: its number, whether it runs, goes or
// leaves, and what keeps it from running. All of it is decided from pods that were read; nothing is
// written, and nothing asked but the list of them.
package podstate

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/kube"
)

// List are the pods of a pool, ascending by number.
func List(ctx context.Context, from client.Reader, pool client.Object, component string) ([]*corev1.Pod, error) {
	list := &corev1.PodList{}
	err := from.List(ctx, list, client.InNamespace(pool.GetNamespace()),
		client.MatchingLabels{dmv1.LabelManagedBy: dmv1.ManagedBy, dmv1.LabelPool: pool.GetName(), dmv1.LabelComponent: component})
	if err != nil {
		return nil, err
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		if p := &list.Items[i]; metav1.IsControlledBy(p, pool) && ID(p) >= 0 {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return ID(a) - ID(b) })
	return pods, nil
}

// Ready reports whether a pod is ready, and since when it has been or has not been.
func Ready(p *corev1.Pod) (is bool, since time.Time) {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	return false, p.CreationTimestamp.Time
}

// Going reports whether a pod is being deleted.
func Going(p *corev1.Pod) bool { return !p.DeletionTimestamp.IsZero() }

// Ended reports whether the containers of a pod will never run again.
func Ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// Container is that of a pod's server. Others may stand before it: meshes put a sidecar first that
// holds the application back.
func Container(p *corev1.Pod) *corev1.Container {
	for i := range p.Spec.Containers {
		if c := &p.Spec.Containers[i]; c.Name == p.Labels[dmv1.LabelComponent] {
			return c
		}
	}
	return &p.Spec.Containers[0]
}

// ContainerStatus is what the kubelet says of the container of a pod's server; nil = nothing yet.
func ContainerStatus(p *corev1.Pod) *corev1.ContainerStatus {
	name := Container(p).Name
	for i := range p.Status.ContainerStatuses {
		if s := &p.Status.ContainerStatuses[i]; s.Name == name {
			return s
		}
	}
	return nil
}

// NeverRan reports whether the server of a pod has not run yet, as far as its kubelet said.
func NeverRan(p *corev1.Pod) bool {
	s := ContainerStatus(p)
	return p.Status.Phase == corev1.PodPending && (s == nil ||
		s.ContainerID == "" && s.RestartCount == 0 && s.State.Running == nil && s.State.Terminated == nil && s.LastTerminationState.Terminated == nil)
}

// Stuck reports whether the server of a pod does not run, and will not with its image as far as its
// kubelet can tell: the image cannot be had, it is none, or what it starts ends.
func Stuck(p *corev1.Pod) bool {
	s := ContainerStatus(p)
	switch {
	case s == nil, s.State.Running != nil:
		return false
	case s.State.Terminated != nil:
		return true
	}
	w := s.State.Waiting
	return w != nil && w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing"
}

// Idle reports whether the server of a pod has served nothing for longer than a restart may take,
// as its kubelet says: of a node that is not heard of, others say that its pods are not ready.
func Idle(p *corev1.Pod, now time.Time) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.ContainersReady {
			return c.Status == corev1.ConditionFalse && p.Status.Phase == corev1.PodRunning && now.Sub(kube.Stamp(p, "", c.LastTransitionTime.Time, now)) > RestartLimit
		}
	}
	return false
}

// Staying is how many pods are to go on.
func Staying(pods []*corev1.Pod) (n int) {
	for _, p := range pods {
		if !Going(p) && !Ended(p) && !Leaving(p) {
			n++
		}
	}
	return n
}

// Leaving reports whether a compute server was told to leave.
func Leaving(p *corev1.Pod) bool { return p.Annotations[dmv1.AnnotationLeaving] != "" }

// RestartLimit is how long a server that is restarted in place may take before the next one follows
// all the same.
const RestartLimit = 5 * time.Minute
