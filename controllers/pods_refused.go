package controllers

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
)

// Kubelets refuse pods that they were given: a device is gone or down (UnexpectedAdmissionError),
// or CPUs, huge pages and device do not lie on one NUMA node (TopologyAffinityError). Such a pod
// never ran and never will; a new one may be refused as well. So each is replaced, but ever more
// slowly. What is remembered are the refused pods themselves: as long as none of the pool started
// since, they stay, at most keptRefused of them.
const (
	firstReplacement   = 5 * time.Second
	slowestReplacement = 5 * time.Minute
	keptRefused        = 7
)

// podAttempt is a pod of a pool as an attempt to have one more server.
type podAttempt struct {
	id      int
	refused bool // by its kubelet
	ended   bool // will never run again, for any reason
	running bool
	created time.Time
}

// afterRefusal says from when on a pod may be replaced, if one was refused last, and which refused
// pods are of no use any more.
func afterRefusal(pods []podAttempt) (from time.Time, drop []int) {
	var refused []podAttempt
	var last time.Time
	for _, p := range pods {
		if p.refused {
			refused = append(refused, p)
			if p.created.After(last) {
				last = p.created
			}
		}
	}
	if len(refused) == 0 {
		return time.Time{}, nil
	}
	over := false
	for _, p := range pods {
		over = over || p.running && !p.ended && p.created.After(last)
	}
	for i, p := range refused { // ascending by id
		if over || i < len(refused)-keptRefused {
			drop = append(drop, p.id)
		}
	}
	if over {
		return time.Time{}, drop
	}
	wait := firstReplacement << (min(len(refused), keptRefused) - 1)
	return last.Add(min(wait, slowestReplacement)), drop
}

// replaceRefused holds back what is to be made until it may be, and adds refused pods that are of
// no use to those to be removed.
func replaceRefused(pods []podAttempt, create int, remove []int, now time.Time) (int, []int, time.Time) {
	next, drop := afterRefusal(pods)
	if create == 0 { // there are enough without
		drop, next = nil, time.Time{}
		for _, p := range pods {
			if p.refused {
				drop = append(drop, p.id)
			}
		}
	}
	remove = append(remove, drop...)
	if next.After(now) {
		create = 0
	}
	return create, remove, next
}

// attempt is a pod as afterRefusal sees it.
func attempt(p *corev1.Pod) podAttempt {
	return podAttempt{id: podID(p), refused: refusedByKubelet(p), ended: ended(p) || going(p), running: p.Status.Phase == corev1.PodRunning, created: p.CreationTimestamp.Time}
}

// refusedByKubelet reports whether a pod failed before any of its containers ran.
func refusedByKubelet(p *corev1.Pod) bool {
	if p.Status.Phase != corev1.PodFailed || going(p) || p.Spec.NodeName == "" {
		return false
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.ContainerID != "" {
			return false
		}
	}
	return true
}

// refusal says what became of the pods that kubelets refused; nil = there are none.
func refusal(pods []*corev1.Pod, next, now time.Time) *outcome.Wait {
	var last *corev1.Pod
	for _, p := range pods {
		if refusedByKubelet(p) {
			last = p
		}
	}
	if last == nil || !next.After(now) {
		return nil
	}
	return outcome.WaitFor(dmv1.ReasonPodRefused, fmt.Sprintf("the kubelet of node %s refused pod %s (%s): %s; the next one is made at %s",
		last.Spec.NodeName, last.Name, last.Status.Reason, last.Status.Message, next.UTC().Format(time.RFC3339)), next.Sub(now))
}

// unschedulable says why a pod has no node yet; empty if none waits for one.
func unschedulable(pods []*corev1.Pod) string {
	for _, p := range pods {
		for _, c := range p.Status.Conditions {
			if !going(p) && c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && (c.Reason == corev1.PodReasonUnschedulable || c.Reason == corev1.PodReasonSchedulingGated) {
				return fmt.Sprintf("no node for pod %s: %s", p.Name, c.Message)
			}
		}
	}
	return ""
}
