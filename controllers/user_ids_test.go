package controllers

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/charttest"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/serverpod"
)

// TestClusterUserIDs: an operator that is told so leaves it to the cluster as whom pods run, and
// one that is not names the user. Pods with RDMA run as user 0 in either case.
func TestClusterUserIDs(t *testing.T) {
	memory, compute := &dmv1.DMMemoryPool{}, &dmv1.DMComputePool{}
	over := &dmv1.DMComputePool{}
	over.Spec.Transport = dmv1.TransportRDMA
	server := build.MemoryPod(memory, 0, "server:1")
	for name, make := range map[string]func() corev1.PodSpec{
		"memory":   func() corev1.PodSpec { return build.MemoryPod(memory, 0, "server:1").Spec },
		"compute":  func() corev1.PodSpec { return build.ComputePod(compute, 0, 0, "x", "server:1", "y").Spec },
		"RDMA":     func() corev1.PodSpec { return build.ComputePod(over, 0, 0, "x", "rdma:1", "y").Spec },
		"an image": func() corev1.PodSpec { return build.ImageProbe(memory, server, 0, "server:2").Spec },
		"a Job": func() corev1.PodSpec {
			return build.DumpJob(&dmv1.DMBackup{}, "server:1", time.Hour).Spec.Template.Spec
		},
	} {
		for _, any := range []bool{false, true} {
			spec := make()
			was := spec.SecurityContext.DeepCopy()
			serverpod.AsUser((&reconciler.Base{ClusterUserIDs: any}), &spec)
			is := spec.SecurityContext
			free := is.RunAsUser == nil && is.RunAsGroup == nil && is.FSGroup == nil
			if named := is.RunAsUser != nil && *is.RunAsUser == *was.RunAsUser; free != (any && name != "RDMA") || named == free {
				t.Errorf("%s, the cluster says: %v: %+v", name, any, is)
			}
			if name != "RDMA" && (is.RunAsNonRoot == nil || !*is.RunAsNonRoot) {
				t.Errorf("%s may run as root: %+v", name, is)
			}
		}
	}
}

// TestChartUserIDs: the operator's own pod, and what it is told, follow the value; on OpenShift
// nothing need be said.
func TestChartUserIDs(t *testing.T) {
	f := func(values string, free bool, versions ...string) {
		t.Helper()
		d := decode[appsv1.Deployment](t, chart(t, values, charttest.Options{APIVersions: versions}).Find("Deployment", "dmindex"))
		spec := d.Spec.Template.Spec
		if named := spec.SecurityContext.RunAsUser != nil; named == free || slices.Contains(spec.Containers[0].Args, "--cluster-user-ids") != free {
			t.Errorf("%s with %v: %+v, %v", values, versions, spec.SecurityContext, spec.Containers[0].Args)
		}
		if !*spec.SecurityContext.RunAsNonRoot {
			t.Errorf("%s: the operator may run as root", values)
		}
	}
	const openshift = "security.openshift.io/v1"
	f("", false)
	f("", true, openshift)
	f("userIDs: cluster", true)
	f("userIDs: fixed", false, openshift)
}
