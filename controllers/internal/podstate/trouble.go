package podstate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/report"
)

// Trouble says what keeps pods from running; no reason = nothing that anybody can see, or they
// run.
func Trouble(pods []*corev1.Pod) (reason, message string) {
	if why := ImageProblem(pods...); why != "" {
		return dmv1.ReasonImageUnavailable, why
	}
	if why := failing(pods); why != "" {
		return dmv1.ReasonPodFailing, why
	}
	if why := Unschedulable(pods); why != "" {
		return dmv1.ReasonUnschedulable, why
	}
	return "", ""
}

// failing says which container does not start, or ends again and again, though its image is there;
// empty if none does.
func failing(pods []*corev1.Pod) string {
	for _, p := range pods {
		if Going(p) || Ended(p) {
			continue
		}
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			w := s.State.Waiting
			if w == nil || w.Reason == "" || waits[w.Reason] || ImageReasons[w.Reason] {
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

// Asked is the image that was asked for when a pod was written. Pods of earlier operators do not
// say.
func Asked(p *corev1.Pod) string {
	return cmp.Or(p.Annotations[dmv1.AnnotationImage], Container(p).Image)
}

// ImageProblem says which pods do not start with their image, and why; empty if all do. Kubelets
// also say it of containers that somebody injected.
func ImageProblem(pods ...*corev1.Pod) string {
	for _, p := range pods {
		if Going(p) || Ended(p) {
			continue
		}
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			w := s.State.Waiting
			if w == nil || !ImageReasons[w.Reason] {
				continue
			}
			image := s.Image
			if s.Name == Container(p).Name {
				image = Asked(p)
			}
			return fmt.Sprintf("pod %s on node %s does not start with image %s: %s: %s", p.Name, p.Spec.NodeName, image, w.Reason, cmp.Or(w.Message, "see the events of the pod"))
		}
	}
	return ""
}

// ImageReasons are what kubelets call it.
var ImageReasons = map[string]bool{
	"ErrImagePull": true, "ImagePullBackOff": true, "InvalidImageName": true, "ErrImageNeverPull": true,
	"ImageInspectError": true, "RegistryUnavailable": true, "SignatureValidationFailed": true,
	"CreateContainerError": true, "RunContainerError": true,
}

// UselessBecause says why a pod is deleted that hands over nothing.
func UselessBecause(p *corev1.Pod) string {
	switch {
	case RefusedByKubelet(p):
		return "its kubelet refused it: " + p.Status.Reason
	case Ended(p):
		return "it ended: " + cmp.Or(p.Status.Reason, string(p.Status.Phase))
	}
	if NeverRan(p) {
		return "it never ran, and is not of the current template"
	}
	return "it was made for what the index was before data was lost"
}

// UnfitPods says what keeps servers from starting, behind a sentence.
func UnfitPods(pods []*corev1.Pod, problems map[int]string) (text string) {
	for _, p := range pods {
		if why := problems[VolumeOf(p)]; why != "" {
			text += fmt.Sprintf("; pod %s on node %s: %s", p.Name, p.Spec.NodeName, why)
		}
	}
	return text
}
