package build

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

const (
	rdmaClaim          = "rdma" // name of the pod's claim of a device
	annotationNetworks = "k8s.v1.cni.cncf.io/networks"
	capIPCLock         = "IPC_LOCK"
)

// rdma turns the pod of a server into one that can use RDMA. With Guaranteed QoS the Topology
// Manager can give it CPUs, huge pages and HCA of one NUMA node. It runs as user 0 with no
// capability but IPC_LOCK, since a capability does nothing for another user; so its namespace must
// not enforce a level of pod security below privileged.
func rdma(p *corev1.Pod, spec *dmv1.RDMASpec) {
	if spec == nil {
		spec = &dmv1.RDMASpec{}
	}
	p.Spec.SecurityContext.RunAsNonRoot = nil
	p.Spec.SecurityContext.RunAsUser = ptr.To(int64(0))
	p.Spec.SecurityContext.RunAsGroup = ptr.To(int64(0))
	c := &p.Spec.Containers[0]
	c.SecurityContext.Capabilities.Add = []corev1.Capability{capIPCLock}
	if spec.ResourceClaimTemplateName != "" {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: rdmaClaim, ResourceClaimTemplateName: ptr.To(spec.ResourceClaimTemplateName)}}
		c.Resources.Claims = []corev1.ResourceClaim{{Name: rdmaClaim}}
	} else {
		demand(c, corev1.ResourceName(rdmaResource(spec)), resource.MustParse("1"))
	}
	if spec.Device != "" {
		c.Args = append(c.Args, "--rdma-device="+spec.Device)
	}
	if spec.Networks != "" {
		p.Annotations[annotationNetworks] = spec.Networks
	}
	guarantee(c)
}

func rdmaResource(spec *dmv1.RDMASpec) string {
	if spec.Resource == "" {
		return dmv1.RDMAResource
	}
	return spec.Resource
}

// demand asks for exactly so much of a resource.
func demand(c *corev1.Container, name corev1.ResourceName, n resource.Quantity) {
	if c.Resources.Limits == nil {
		c.Resources.Limits = corev1.ResourceList{}
	}
	if c.Resources.Requests == nil {
		c.Resources.Requests = corev1.ResourceList{}
	}
	c.Resources.Limits[name], c.Resources.Requests[name] = n, n
}

// guarantee makes requests and limits equal: what has a limit requests that much, what has none is
// limited to its request. The disk is no part of it: a pod that exceeds such a limit is ended.
func guarantee(c *corev1.Container) {
	for name, n := range c.Resources.Requests {
		if _, limited := c.Resources.Limits[name]; !limited && name != corev1.ResourceEphemeralStorage {
			demand(c, name, n)
		}
	}
	for name, n := range c.Resources.Limits {
		demand(c, name, n)
	}
}

// hugePages is the resource and the medium of huge pages of a size.
func hugePages(size dmv1.HugePageSize) (corev1.ResourceName, corev1.StorageMedium) {
	return corev1.ResourceHugePagesPrefix + corev1.ResourceName(size), corev1.StorageMediumHugePagesPrefix + corev1.StorageMedium(size)
}

// hugePageBytes is a size in bytes; 0 = no huge pages.
func hugePageBytes(spec *dmv1.RDMASpec) int64 {
	if spec == nil || spec.HugePages == "" {
		return 0
	}
	n := resource.MustParse(string(spec.HugePages))
	return n.Value()
}

// defaultCPU is what a server requests if its template says nothing. With RDMA it is also its
// limit, so it is a whole CPU, which a kubelet with the static CPU manager gives to it alone.
func defaultCPU(t dmv1.Transport) resource.Quantity {
	if t == dmv1.TransportRDMA {
		return resource.MustParse("1")
	}
	return resource.MustParse("100m")
}
