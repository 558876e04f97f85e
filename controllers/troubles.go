package controllers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/report"
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

// podTrouble says what keeps pods from running; no reason = nothing that anybody can see, or they
// run.
func podTrouble(pods []*corev1.Pod) (reason, message string) {
	if why := imageProblem(pods...); why != "" {
		return dmv1.ReasonImageUnavailable, why
	}
	if why := failing(pods); why != "" {
		return dmv1.ReasonPodFailing, why
	}
	if why := unschedulable(pods); why != "" {
		return dmv1.ReasonUnschedulable, why
	}
	return "", ""
}

// failing says which container does not start, or ends again and again, though its image is there;
// empty if none does.
func failing(pods []*corev1.Pod) string {
	for _, p := range pods {
		if going(p) || ended(p) {
			continue
		}
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			w := s.State.Waiting
			if w == nil || w.Reason == "" || waits[w.Reason] || imageReasons[w.Reason] {
				continue
			}
			text := fmt.Sprintf("container %s of pod %s on node %s: %s: %s", s.Name, p.Name, p.Spec.NodeName, w.Reason, cmp.Or(w.Message, "see the events of the pod"))
			if t := s.LastTerminationState.Terminated; t != nil {
				text += fmt.Sprintf("; it ended last with code %d (%s)", t.ExitCode, t.Reason)
				if said := lastLine(t.Message); said != "" {
					text += ": " + said
				}
				if t.Reason == "OOMKilled" {
					text += ": its limit of memory is too low"
				}
			}
			return text + "; kubectl logs " + p.Name + " --namespace " + p.Namespace + " --previous"
		}
	}
	return ""
}

// lastLine is the last line of what a container said when it ended, as far as a condition has room
// for it. Its program says there why it ended.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return report.Cut(text[strings.LastIndexByte(text, '\n')+1:], 768)
}

// waits are what kubelets call a container that is on its way.
var waits = map[string]bool{"ContainerCreating": true, "PodInitializing": true}

// poolTrouble is what the pools of an index say that does not go away by itself; nil = nothing.
func (s *indexScope) poolTrouble() *shortage {
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
