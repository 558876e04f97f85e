package serverpod

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/pkg/logs"
	"github.com/dmindex/dmindex/pkg/profile"
)

// Equip completes a new pod of a pool. It tells its server whether to serve profiles, and how to
// log, by variables, which older images ignore. Then it changes the pod as the patch of the pool's
// template says. Pods that there are stay as they are: nobody is moved for a look at it.
func Equip(b *reconciler.Base, pool client.Object, pod *corev1.Pod, t *dmv1.PodTemplate) error {
	AsUser(b, &pod.Spec)
	c := podstate.Container(pod)
	set := func(name, value string) {
		there := slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == name })
		if value != "" && !there { // what the spec of an index says comes first
			c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
		}
	}
	if b.Pprof {
		set(profile.Env, "true")
	}
	set(logs.EnvLevel, b.Logs.Level)
	set(logs.EnvFormat, b.Logs.Format)
	return Patch(b, pool, &pod.Spec, t)
}

// Patch changes a pod, or the pods of a Job, as a template of owner says.
func Patch(b *reconciler.Base, owner client.Object, spec *corev1.PodSpec, t *dmv1.PodTemplate) error {
	err := build.Patch(spec, t.Patch)
	if err == nil {
		return nil
	}
	wait := outcome.WaitFor(dmv1.ReasonPatchRefused, fmt.Sprintf("pod.patch of %s %s cannot be used, and no pod is made: %v", kube.KindOf(owner).Kind, owner.GetName(), err), 0)
	if b.Logged.Once(owner.GetUID(), "patch "+wait.Message) {
		b.Events.Eventf(owner, nil, corev1.EventTypeWarning, wait.Reason, "CreatePods", "%s", wait.Message)
	}
	return wait
}

// patchRefused reports whether an object was not made since the patch of its template cannot be
// used. A changed template ends that.
func patchRefused(err error) bool {
	var wait *outcome.Wait
	return errors.As(err, &wait) && wait.Reason == dmv1.ReasonPatchRefused
}

// AsUser lets the cluster say as whom a pod runs, if the operator was told to: one that gives each
// namespace a range of ids refuses all others. Pods that there are stay as they are: nobody is
// replaced for it. Those with RDMA run as user 0, which they cannot do without.
func AsUser(b *reconciler.Base, spec *corev1.PodSpec) {
	if c := spec.SecurityContext; b.ClusterUserIDs && c != nil && c.RunAsUser != nil && *c.RunAsUser == build.User {
		c.RunAsUser, c.RunAsGroup, c.FSGroup = nil, nil, nil
	}
}

// NoRDMAImage halts what needs an image with RDMA that nobody named.
func NoRDMAImage(what string) error {
	return outcome.WaitFor(dmv1.ReasonNoRDMAImage, "no image with RDMA is known: set spec.image of "+what+
		" to one (make image-rdma writes it), or start the operator with --server-image-rdma (chart: serverImageRDMA)", 0)
}
