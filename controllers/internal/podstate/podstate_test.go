package podstate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// TestContainer: the container of a server is found by its name, and so is its status.
func TestContainer(t *testing.T) {
	p := &corev1.Pod{}
	p.Labels = map[string]string{dmv1.LabelComponent: dmv1.ComponentMemory}
	p.Spec.Containers = []corev1.Container{{Name: "istio-proxy"}, {Name: dmv1.ComponentMemory}}
	if c := Container(p); c != &p.Spec.Containers[1] {
		t.Errorf("container %s", c.Name)
	}
	if ContainerStatus(p) != nil {
		t.Error("there is a status before there is one")
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "istio-proxy", ContainerID: "1"}, {Name: dmv1.ComponentMemory}}
	if s := ContainerStatus(p); s != &p.Status.ContainerStatuses[1] {
		t.Errorf("status of %s", s.Name)
	}
}

// TestStuck: which pods' servers never ran, and which do not run with their image.
func TestStuck(t *testing.T) {
	f := func(name string, never, is bool, phase corev1.PodPhase, of ...corev1.ContainerStatus) {
		t.Helper()
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: phase}}
		p.Labels = map[string]string{dmv1.LabelComponent: dmv1.ComponentCompute}
		p.Spec.Containers = []corev1.Container{{Name: "sidecar"}, {Name: dmv1.ComponentCompute}}
		sidecar := corev1.ContainerStatus{Name: "sidecar", ContainerID: "1"}
		sidecar.State.Running = &corev1.ContainerStateRunning{}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{sidecar}
		for _, s := range of {
			s.Name = dmv1.ComponentCompute
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s)
		}
		if got := NeverRan(p); got != never {
			t.Errorf("%s: never ran: %v", name, got)
		}
		if got := Stuck(p); got != is {
			t.Errorf("%s: stuck: %v", name, got)
		}
	}
	waiting := func(reason string) (s corev1.ContainerStatus) {
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason}
		return s
	}
	ended := &corev1.ContainerStateTerminated{ExitCode: 1}
	running := corev1.ContainerStatus{ContainerID: "2", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	f("new", true, false, corev1.PodPending)
	f("being made", true, false, corev1.PodPending, waiting("ContainerCreating"))
	for _, reason := range []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError"} {
		f(reason, true, true, corev1.PodPending, waiting(reason))
	}
	f("running", false, false, corev1.PodRunning, running)
	after := waiting("ImagePullBackOff") // of an image that was changed in place
	after.RestartCount, after.LastTerminationState.Terminated = 1, ended
	f("another image cannot be had", false, true, corev1.PodRunning, after)
	loop := waiting("CrashLoopBackOff")
	loop.ContainerID, loop.RestartCount = "3", 4
	f("ends again and again", false, true, corev1.PodRunning, loop)
	f("has ended just now", false, true, corev1.PodRunning, corev1.ContainerStatus{ContainerID: "4", State: corev1.ContainerState{Terminated: ended}})
}
