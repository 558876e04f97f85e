package controllers

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/kube"
)

// listPods are the pods of a pool, ascending by number.
func listPods(ctx context.Context, from client.Reader, pool client.Object, component string) ([]*corev1.Pod, error) {
	list := &corev1.PodList{}
	err := from.List(ctx, list, client.InNamespace(pool.GetNamespace()),
		client.MatchingLabels{dmv1.LabelManagedBy: dmv1.ManagedBy, dmv1.LabelPool: pool.GetName(), dmv1.LabelComponent: component})
	if err != nil {
		return nil, err
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		if p := &list.Items[i]; metav1.IsControlledBy(p, pool) && podID(p) >= 0 {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return podID(a) - podID(b) })
	return pods, nil
}

// podID is the number of a pod in its pool; -1 if it has none. It is read from the name, which
// nobody can change. With another label a memory server would seem to be a new one beside itself.
func podID(p *corev1.Pod) int { return numberIn(p.Name) }

// numberIn is the number at the end of the name of a pod or a claim; -1 if there is none.
func numberIn(name string) int {
	id, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if err != nil {
		return -1
	}
	return id
}

// ready reports whether a pod is ready, and since when it has been or has not been.
func ready(p *corev1.Pod) (is bool, since time.Time) {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	return false, p.CreationTimestamp.Time
}

// going reports whether a pod is being deleted, ended whether its containers will never run again.
func going(p *corev1.Pod) bool { return !p.DeletionTimestamp.IsZero() }
func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// container is that of a pod's server. Others may stand before it: meshes put a sidecar first that
// holds the application back.
func container(p *corev1.Pod) *corev1.Container {
	for i := range p.Spec.Containers {
		if c := &p.Spec.Containers[i]; c.Name == p.Labels[dmv1.LabelComponent] {
			return c
		}
	}
	return &p.Spec.Containers[0]
}

// containerStatus is what the kubelet says of the container of a pod's server; nil = nothing yet.
func containerStatus(p *corev1.Pod) *corev1.ContainerStatus {
	name := container(p).Name
	for i := range p.Status.ContainerStatuses {
		if s := &p.Status.ContainerStatuses[i]; s.Name == name {
			return s
		}
	}
	return nil
}

// neverRan reports whether the server of a pod has not run yet, as far as its kubelet said.
func neverRan(p *corev1.Pod) bool {
	s := containerStatus(p)
	return p.Status.Phase == corev1.PodPending && (s == nil ||
		s.ContainerID == "" && s.RestartCount == 0 && s.State.Running == nil && s.State.Terminated == nil && s.LastTerminationState.Terminated == nil)
}

// stuck reports whether the server of a pod does not run, and will not with its image as far as its
// kubelet can tell: the image cannot be had, it is none, or what it starts ends.
func stuck(p *corev1.Pod) bool {
	s := containerStatus(p)
	switch {
	case s == nil, s.State.Running != nil:
		return false
	case s.State.Terminated != nil:
		return true
	}
	w := s.State.Waiting
	return w != nil && w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing"
}

// idle reports whether the server of a pod has served nothing for longer than a restart may take,
// as its kubelet says: of a node that is not heard of, others say that its pods are not ready.
func idle(p *corev1.Pod, now time.Time) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.ContainersReady {
			return c.Status == corev1.ConditionFalse && p.Status.Phase == corev1.PodRunning && now.Sub(kube.Stamp(p, "", c.LastTransitionTime.Time, now)) > restartLimit
		}
	}
	return false
}

// nextID is the number that a pool gives to its next pod. Numbers of pods that are there count too:
// an annotation may have been lost with a backup.
func nextID(pool client.Object, pods []*corev1.Pod) int {
	next, err := strconv.Atoi(pool.GetAnnotations()[dmv1.AnnotationNextID])
	if err != nil {
		next = 0
	}
	for _, p := range pods {
		next = max(next, podID(p)+1)
	}
	return next
}

// nextVolume is the number that a memory pool gives to its next volume, and to the pod that it
// makes with it.
func nextVolume(pool client.Object, pods []*corev1.Pod) int {
	return nextID(pool, slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return podID(p) > build.MaxVolume }))
}

// renewTLS tells the kubelets of pods that their TLS Secret changed; without that they would notice
// within a minute or two.
func renewTLS(ctx context.Context, b *base, pods []*corev1.Pod, hash string) error {
	for _, p := range pods {
		if going(p) || p.Annotations[dmv1.AnnotationTLS] == hash {
			continue
		}
		if err := b.Annotate(ctx, p.DeepCopy(), map[string]string{dmv1.AnnotationTLS: hash}); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}
