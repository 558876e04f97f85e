package memorypool

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// TestGravestVolumeFirst: of several volumes the gravest reason is the condition's, its volume
// comes first, and the others follow with their reasons.
func TestGravestVolumeFirst(t *testing.T) {
	f := func(problems []volumeProblem, wantReason, wantMessage string) {
		t.Helper()
		if reason, message := worst(problems); reason != wantReason || message != wantMessage {
			t.Errorf("%s: %s\nwant %s: %s", reason, message, wantReason, wantMessage)
		}
	}
	missing := volumeProblem{dmv1.ReasonCopyMissing, "volume 2", "pod a gets its copy"}
	another := volumeProblem{dmv1.ReasonCopyMissing, "volume 10", "pod b gets its copy"}
	noNode := volumeProblem{dmv1.ReasonNoNodeForCopy, "volume 3", "0/3 nodes"}
	pending := volumeProblem{dmv1.ReasonDecisionPending, "volume 11", "pod c does not answer"}
	lacks := volumeProblem{dmv1.ReasonCopyMayLack, "volume 12", "a copy is left"}
	f(nil, "", "")
	f([]volumeProblem{missing, another}, "CopyMissing", "volume 2: pod a gets its copy; volume 10: pod b gets its copy")
	f([]volumeProblem{missing, noNode, pending}, "DecisionPending", "volume 11: pod c does not answer; volume 3 (NoNodeForCopy): 0/3 nodes; volume 2 (CopyMissing): pod a gets its copy")
	f([]volumeProblem{missing, pending, lacks}, "CopyMayLack", "volume 12: a copy is left; volume 11 (DecisionPending): pod c does not answer; volume 2 (CopyMissing): pod a gets its copy")
}

// TestGravestPodFirst: a disk that may lack something, and a claim that is gone, are the reason of
// a pool whatever else is in the way, and also while all servers answer; nothing is left out.
func TestGravestPodFirst(t *testing.T) {
	pod := func(name string, status corev1.ContainerStatus) *corev1.Pod {
		status.Name = dmv1.ComponentMemory
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}}
		p.Spec.Containers = []corev1.Container{{Name: dmv1.ComponentMemory, Image: "server:1"}}
		p.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{status}}
		return p
	}
	waits := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "as it is"}}
	}
	noImage := pod("demo-0", corev1.ContainerStatus{State: waits("ErrImagePull")})
	mayLack := pod("demo-1", corev1.ContainerStatus{State: waits("CrashLoopBackOff"), LastTerminationState: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: config.PersistMayLack}}})
	lost := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "demo-2"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimLost}}
	f := func(name string, servers int32, pods []*corev1.Pod, claim *corev1.PersistentVolumeClaim, err error, reasons ...string) {
		t.Helper()
		s := &scope{pool: &dmv1.DMMemoryPool{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}, pods: pods}
		s.pool.Spec.Servers = servers
		if claim != nil {
			s.claims = map[int]*corev1.PersistentVolumeClaim{2: claim}
		}
		s.summarize(err)
		c := apimeta.FindStatusCondition(s.pool.Status.Conditions, dmv1.ConditionPoolReady)
		if c.Reason != reasons[0] {
			t.Errorf("%s: %s, want %s: %s", name, c.Reason, reasons[0], c.Message)
		}
		for _, want := range reasons[1:] {
			if !strings.Contains(c.Message, want) {
				t.Errorf("%s: it does not say %q: %s", name, want, c.Message)
			}
		}
	}
	const disk, claim, image = "the disk of demo-1 may lack", "claim demo-2 lost its volume", "demo-0 on node  does not start with image"
	f("an image alone", 2, []*corev1.Pod{noImage}, nil, nil, dmv1.ReasonImageUnavailable, image)
	f("a disk besides", 2, []*corev1.Pod{noImage, mayLack}, nil, nil, dmv1.ReasonDiskMayLack, disk, image)
	f("a claim besides", 2, []*corev1.Pod{noImage}, lost, nil, dmv1.ReasonClaimMissing, claim, image)
	f("all of them", 3, []*corev1.Pod{noImage, mayLack}, lost, nil, dmv1.ReasonDiskMayLack, disk, claim, image)
	f("an error besides", 3, []*corev1.Pod{mayLack}, nil, errors.New("quota"), dmv1.ReasonDiskMayLack, disk, "quota")
	f("all servers answer", 0, nil, lost, nil, dmv1.ReasonClaimMissing, claim, "all 0 memory servers answer")
}
