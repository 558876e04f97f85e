package envtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// noImage makes the containers of pods whose image starts with typo wait for it, as kubelets do.
func (c *cluster) noImage() {
	c.t.Helper()
	list := &corev1.PodList{}
	if err := api.List(c.t.Context(), list, client.InNamespace(c.namespace)); err != nil {
		c.t.Fatal(err)
	}
	for _, p := range list.Items {
		if !strings.HasPrefix(p.Spec.Containers[0].Image, "typo") || len(p.Status.ContainerStatuses) > 0 {
			continue
		}
		ran := p.Status.PodIP != "" // with another image
		c.podStatus(p.Name, func(s *corev1.PodStatus) {
			waiting := corev1.ContainerStatus{Name: p.Spec.Containers[0].Name, Image: p.Spec.Containers[0].Image}
			waiting.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}
			if ran {
				c.fleet.SetAway(c.namespace, p.Name, true)
				waiting.RestartCount, waiting.LastTerminationState.Terminated = 1, &corev1.ContainerStateTerminated{ExitCode: 2}
				s.Conditions[0].Status, s.Conditions[0].LastTransitionTime = corev1.ConditionFalse, metav1.Now()
			}
			s.ContainerStatuses = []corev1.ContainerStatus{waiting}
		})
	}
}

// TestImageMistyped: an image that cannot be had changes no memory server, the index serves on and
// says which image it is, and all is well as soon as there is one that can be had, be it the former
// one or another.
func TestImageMistyped(t *testing.T) {
	t.Parallel()
	for _, image := range []string{"server:1", "server:3"} {
		t.Run(image, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.start(0)
			c.create(index, "demo")
			c.available("demo")
			c.startable.Store(false)
			i := &dmv1.DMIndex{}
			c.patch("demo", i, func() { i.Spec.Image = "typo:1" })
			c.eventually("a probe and one more compute pod have the image", func() string {
				c.noImage()
				probe := &corev1.Pod{}
				if pods := c.pods("demo-compute"); len(pods) == 3 && c.get("demo-memory.image-0", probe) == nil && len(c.pod(pods[2]).Status.ContainerStatuses) > 0 {
					return ""
				}
				return fmt.Sprint(c.pods("demo-compute"), probe.Name)
			})
			c.eventually("the status names image and reason", func() string {
				c.noImage()
				p := apimeta.FindStatusCondition(c.index("demo").Status.Conditions, dmv1.ConditionProgressing)
				for _, want := range []string{"memory pool demo-memory: pod demo-memory.image-0", "compute pool demo-compute: pod demo-compute-2", "image typo:1: ImagePullBackOff"} {
					if p == nil || p.Reason != dmv1.ReasonImageUnavailable || !strings.Contains(p.Message, want) {
						return fmt.Sprintf("%+v", p)
					}
				}
				return ""
			})
			c.quiet(time.Second)
			c.condition("demo", dmv1.ConditionAvailable, metav1.ConditionTrue, dmv1.ReasonServing, "")
			for _, pod := range []string{"demo-memory-0", "demo-memory-1"} {
				if image := c.pod(pod).Spec.Containers[0].Image; image != "server:1" {
					t.Errorf("pod %s has the image %s", pod, image)
				}
			}
			uid := c.pod("demo-memory-0").UID
			c.patch("demo", i, func() { i.Spec.Image = image })
			c.equal("image of the memory pod", image, func() any { return c.pod("demo-memory-0").Spec.Containers[0].Image })
			// the compute pod with the typo is gone before kubelets start anything, and a container
			// that is ready in the second of its restart is not noticed at once
			c.quiet(2 * time.Second)
			if image != "server:1" {
				c.podStatus("demo-memory-0", func(s *corev1.PodStatus) { s.Conditions[0].Status = corev1.ConditionFalse })
			}
			c.startable.Store(true)
			want := "[demo-compute-0 demo-compute-1]"
			if image != "server:1" {
				want = "[demo-compute-3 demo-compute-4]"
			}
			c.equal("compute pods", want, func() any { return c.pods("demo-compute") })
			c.equal("image of the other memory pod", image, func() any { return c.pod("demo-memory-1").Spec.Containers[0].Image })
			c.available("demo")
			c.condition("demo", dmv1.ConditionProgressing, metav1.ConditionFalse, dmv1.ReasonAsDesired, "")
			if c.pod("demo-memory-0").UID != uid {
				t.Error("the memory pod was replaced")
			}
			c.settled("demo")
		})
	}
}

// TestLostBesideAnImageMistyped: a compute server that is lost while the wanted image cannot be had
// is replaced by one of the image that the others have, which serves as they do.
func TestLostBesideAnImageMistyped(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.startable.Store(false)
	i := &dmv1.DMIndex{}
	c.patch("demo", i, func() { i.Spec.Image = "typo:1" })
	c.equal("one more", "[demo-compute-0 demo-compute-1 demo-compute-2]", func() any { return c.pods("demo-compute") })
	c.noImage()
	c.deletePod("demo-compute-0")
	c.equal("one instead", "[demo-compute-1 demo-compute-2 demo-compute-3]", func() any { return c.pods("demo-compute") })
	for pod, want := range map[string]string{"demo-compute-2": "typo:1", "demo-compute-3": "server:1"} {
		if image := c.pod(pod).Spec.Containers[0].Image; image != want {
			t.Errorf("pod %s has image %s, want %s", pod, image, want)
		}
	}
	c.quiet(time.Second)
	c.patch("demo", i, func() { i.Spec.Image = "server:1" })
	c.equal("put right", "[demo-compute-1 demo-compute-3]", func() any { return c.pods("demo-compute") })
	c.startable.Store(true)
	c.available("demo")
	c.settled("demo")
}

// TestSidecarFirst: the image of a server is that of its container, also where a mesh put a sidecar
// before it.
func TestSidecarFirst(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(memoryPool, "pool")
	c.memoryPoolReady("pool", dmv1.ReasonAsDesired, "")
	c.stop()
	for _, name := range c.pods("pool") {
		p := c.pod(name)
		injected := p.DeepCopy()
		injected.ResourceVersion, injected.UID, injected.Status = "", "", corev1.PodStatus{}
		injected.Spec.Containers = append([]corev1.Container{{Name: "istio-proxy", Image: "istio:1"}}, injected.Spec.Containers...)
		c.deletePod(name)
		if err := api.Create(t.Context(), injected); err != nil {
			t.Fatal(err)
		}
	}
	c.start(0)
	c.memoryPoolReady("pool", dmv1.ReasonAsDesired, "")
	pool := &dmv1.DMMemoryPool{}
	c.patch("pool", pool, func() { pool.Spec.Image = "server:2" })
	c.equal("images", "istio:1 server:2", func() any {
		containers := c.pod("pool-0").Spec.Containers
		return containers[0].Image + " " + containers[1].Image
	})
}
