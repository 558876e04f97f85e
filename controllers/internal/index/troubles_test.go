package index

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/computepool"
	"github.com/dmindex/dmindex/controllers/internal/memorypool"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/serverpod"
)

// TestTroublesArePassedUp: what keeps a pod from running stands at the pool and at the index, with
// one reason, the object and its words, whether the index was made or not. No index that waits for
// somebody is as desired.
func TestTroublesArePassedUp(t *testing.T) {
	waiting := func(reason, message string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: p.Labels[dmv1.LabelComponent], State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
		}
	}
	f := func(name, reason, want string, pod func(*corev1.Pod), err error) {
		t.Helper()
		for _, component := range []string{dmv1.ComponentMemory, dmv1.ComponentCompute} {
			for _, created := range []string{"", "true"} {
				s := troubled(component, pod, err)
				s.index.Annotations = map[string]string{dmv1.AnnotationCreated: created}
				var outcome error
				if created == "" {
					outcome = new(Reconciler).chooseMemory(t.Context(), s)
					if component == dmv1.ComponentCompute {
						outcome = nil // it has its memory
					}
				}
				s.conditions(outcome, 0)
				for _, kind := range []string{dmv1.ConditionAvailable, dmv1.ConditionProgressing, dmv1.ConditionDegraded} {
					c := apimeta.FindStatusCondition(s.index.Status.Conditions, kind)
					if c.Reason != reason || !strings.Contains(c.Message, want) || !strings.Contains(c.Message, component+" pool demo-"+component) {
						t.Errorf("%s, %s, created %q: %s is %s %s: %s; want %s with %q", name, component, created, kind, c.Status, c.Reason, c.Message, reason, want)
					}
				}
			}
		}
	}
	pods := schema.GroupResource{Resource: "pods"}
	f("quota", dmv1.ReasonPoolRefused, "exceeded quota", nil, apierrors.NewForbidden(pods, "demo-x-0", errors.New("exceeded quota: small")))
	f("priority class", dmv1.ReasonPoolRefused, "no PriorityClass", nil, apierrors.NewForbidden(pods, "demo-x-0", errors.New("no PriorityClass with name high was found")))
	f("label", dmv1.ReasonPoolRefused, "Invalid", nil, &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Message: "Pod demo-x-0: Invalid value"}})
	f("no node", dmv1.ReasonUnschedulable, "0/3 nodes are available", func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available"}}
	}, nil)
	f("scheduling gate", dmv1.ReasonUnschedulable, "Scheduling is blocked", func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated, Message: "Scheduling is blocked due to non-empty scheduling gates"}}
	}, nil)
	for reason := range podstate.ImageReasons {
		f(reason, dmv1.ReasonImageUnavailable, reason+": no such image", waiting(reason, "no such image"), nil)
	}
	f("a Secret that is missing", dmv1.ReasonPodFailing, `secret "x" not found`, waiting("CreateContainerConfigError", `secret "x" not found`), nil)
	f("a hook that fails", dmv1.ReasonPodFailing, "PostStartHookError", waiting("PostStartHookError", ""), nil)
	f("a sandbox's container", dmv1.ReasonPodFailing, "kubectl logs demo-", func(p *corev1.Pod) {
		waiting("CrashLoopBackOff", "back-off 5m0s")(p)
		p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
	}, nil)
	f("out of memory", dmv1.ReasonPodFailing, "ended last with code 137 (OOMKilled): its limit of memory is too low", func(p *corev1.Pod) {
		waiting("CrashLoopBackOff", "back-off 5m0s")(p)
		p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
	}, nil)
	f("a container that a webhook put in", dmv1.ReasonPodFailing, "container istio-init of pod", func(p *corev1.Pod) {
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "istio-init", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}}}}
	}, nil)
	f("no image with RDMA", dmv1.ReasonNoRDMAImage, "serverImageRDMA", nil, serverpod.NoRDMAImage("the pool"))
	f("another object", dmv1.ReasonNameTaken, "is taken", nil, outcome.WaitFor(dmv1.ReasonNameTaken, "the name is taken", 0))
}

// troubled is an index of one memory and one compute server, of which that of a component is not
// there: its pool was looked at, with an outcome.
func troubled(component string, change func(*corev1.Pod), err error) *scope {
	s := &scope{index: &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "shop"}}}
	memory, compute := &dmv1.DMMemoryPool{ObjectMeta: metav1.ObjectMeta{Name: "demo-memory"}}, &dmv1.DMComputePool{ObjectMeta: metav1.ObjectMeta{Name: "demo-compute"}}
	memory.Spec.Servers, compute.Spec.Replicas, s.view.Desired = 1, 1, 1
	var pods []*corev1.Pod
	if change != nil {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "demo-" + component + "-0", Namespace: "shop", Labels: map[string]string{dmv1.LabelComponent: component}}}
		p.Spec.Containers = []corev1.Container{{Name: component, Image: "server:1"}}
		p.Status.Phase = corev1.PodPending
		change(p)
		pods = append(pods, p)
	}
	if component == dmv1.ComponentMemory {
		memorypool.Summarize(memory, pods, err)
	} else {
		computepool.Summarize(compute, pods, err)
	}
	s.memoryPools, s.computePools = []memoryPool{{pool: memory}}, []*dmv1.DMComputePool{compute}
	return s
}

// TestNotAsDesired: an index that waits for somebody says so in the column Health.
func TestNotAsDesired(t *testing.T) {
	for reason := range troubles {
		s := &scope{index: &dmv1.DMIndex{}}
		s.conditions(outcome.WaitFor(reason, "somebody has to do something", 0), 0)
		if c := apimeta.FindStatusCondition(s.index.Status.Conditions, dmv1.ConditionDegraded); c.Status != metav1.ConditionTrue || c.Reason != reason {
			t.Errorf("%s: %+v", reason, c)
		}
	}
	s := &scope{index: &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{dmv1.AnnotationCreated: "true"}}}}
	s.short = &shortage{dmv1.ReasonMemoryPending, "pod demo-memory-0 lacks 3 chunks"}
	s.conditions(nil, 0)
	if c := apimeta.FindStatusCondition(s.index.Status.Conditions, dmv1.ConditionDegraded); c.Status != metav1.ConditionTrue || c.Reason != dmv1.ReasonMemoryPending {
		t.Errorf("an index that is served with less than it asks for: %+v", c)
	}
	// what goes away by itself is no trouble
	s = &scope{index: &dmv1.DMIndex{}}
	s.conditions(outcome.WaitFor(dmv1.ReasonWaitingForMemory, "0 of 1 answer", 0), 0)
	if c := apimeta.FindStatusCondition(s.index.Status.Conditions, dmv1.ConditionDegraded); c.Status != metav1.ConditionFalse {
		t.Errorf("an index that is being made: %+v", c)
	}
}
