package podstate

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
	SlowestReplacement = 5 * time.Minute
	keptRefused        = 7
)

// Attempt is a pod of a pool as an attempt to have one more server.
type Attempt struct {
	ID      int
	Refused bool // by its kubelet
	Ended   bool // will never run again, for any reason
	running bool
	Created time.Time
}

// afterRefusal says from when on a pod may be replaced, if one was refused last, and which refused
// pods are of no use any more.
func afterRefusal(pods []Attempt) (from time.Time, drop []int) {
	var refused []Attempt
	var last time.Time
	for _, p := range pods {
		if p.Refused {
			refused = append(refused, p)
			if p.Created.After(last) {
				last = p.Created
			}
		}
	}
	if len(refused) == 0 {
		return time.Time{}, nil
	}
	over := false
	for _, p := range pods {
		over = over || p.running && !p.Ended && p.Created.After(last)
	}
	for i, p := range refused { // ascending by id
		if over || i < len(refused)-keptRefused {
			drop = append(drop, p.ID)
		}
	}
	if over {
		return time.Time{}, drop
	}
	wait := firstReplacement << (min(len(refused), keptRefused) - 1)
	return last.Add(min(wait, SlowestReplacement)), drop
}

// ReplaceRefused holds back what is to be made until it may be, and adds refused pods that are of
// no use to those to be removed.
func ReplaceRefused(pods []Attempt, create int, remove []int, now time.Time) (int, []int, time.Time) {
	next, drop := afterRefusal(pods)
	if create == 0 { // there are enough without
		drop, next = nil, time.Time{}
		for _, p := range pods {
			if p.Refused {
				drop = append(drop, p.ID)
			}
		}
	}
	remove = append(remove, drop...)
	if next.After(now) {
		create = 0
	}
	return create, remove, next
}

// AttemptOf is a pod as afterRefusal sees it.
func AttemptOf(p *corev1.Pod) Attempt {
	return Attempt{ID: ID(p), Refused: RefusedByKubelet(p), Ended: Ended(p) || Going(p), running: p.Status.Phase == corev1.PodRunning, Created: p.CreationTimestamp.Time}
}

// RefusedByKubelet reports whether a pod failed before any of its containers ran.
func RefusedByKubelet(p *corev1.Pod) bool {
	if p.Status.Phase != corev1.PodFailed || Going(p) || p.Spec.NodeName == "" {
		return false
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.ContainerID != "" {
			return false
		}
	}
	return true
}

// Refusal says what became of the pods that kubelets refused; nil = there are none.
func Refusal(pods []*corev1.Pod, next, now time.Time) *outcome.Wait {
	var last *corev1.Pod
	for _, p := range pods {
		if RefusedByKubelet(p) {
			last = p
		}
	}
	if last == nil || !next.After(now) {
		return nil
	}
	return outcome.WaitFor(dmv1.ReasonPodRefused, fmt.Sprintf("the kubelet of node %s refused pod %s (%s): %s; the next one is made at %s",
		last.Spec.NodeName, last.Name, last.Status.Reason, last.Status.Message, next.UTC().Format(time.RFC3339)), next.Sub(now))
}

// Unschedulable says why a pod has no node yet; empty if none waits for one.
func Unschedulable(pods []*corev1.Pod) string {
	for _, p := range pods {
		for _, c := range p.Status.Conditions {
			if !Going(p) && c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && (c.Reason == corev1.PodReasonUnschedulable || c.Reason == corev1.PodReasonSchedulingGated) {
				return fmt.Sprintf("no node for pod %s: %s", p.Name, c.Message)
			}
		}
	}
	return ""
}
