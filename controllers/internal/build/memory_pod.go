package build

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// Memory that a server takes beside its region: lock table and ledger in the same volume, then the
// process.
const (
	volumeHeadroom  = 64 << 20
	processHeadroom = config.MemoryServerFabric + config.MemoryServerControl + config.MemoryServerRest + config.MemoryServerOutside
	leastHeap       = 64 << 20 // of GOMEMLIMIT, whatever limit a template has
)

// MemoryPod is the pod of a memory server with a volume of its own, of the same number. Its region
// is a file in a volume of memory, which lives as long as the pod: a container that restarts finds
// it again. With persistence it reads its region from the claim of its name.
func MemoryPod(pool *dmv1.DMMemoryPool, id int, image string) *corev1.Pod {
	p := memoryPod(pool, id, id, image)
	if pool.Spec.Transport != dmv1.TransportRDMA {
		// A variable and no argument: an image that knows no copies would not start for that.
		c := &p.Spec.Containers[0]
		c.Env = append(c.Env, corev1.EnvVar{Name: config.EnvMirror, Value: mirrorAddress})
	}
	return p
}

// mirrorAddress is where a memory server takes the changes of another one.
var mirrorAddress = fmt.Sprintf(":%d", config.PortMirror)

func memoryPod(pool *dmv1.DMMemoryPool, id, volume int, image string) *corev1.Pod {
	spec := pool.Spec.MemoryServers
	memory := spec.Memory.Value()
	args := []string{
		"memserver",
		volumeFlag + strconv.Itoa(volume+1),
		dataFlag(&spec),
		fmt.Sprintf("--memory=%d", memory),
		fmt.Sprintf("--chunk-size=%d", ChunkSize(pool)),
		fmt.Sprintf("--control=:%d", config.PortControl),
		fmt.Sprintf("--%s=:%d", fabricFlag(spec.Transport), config.PortFabric),
		fmt.Sprintf("--metrics=:%d", config.PortMetrics),
		"--tls-dir=" + config.TLSDir,
	}
	p := pod(pool.Name, pool.Namespace, dmv1.ComponentMemory, id, spec.Pod, image, args)
	wider(p, spec.Spread, pool.Name, dmv1.ComponentMemory)
	c := &p.Spec.Containers[0]
	c.Ports = append(c.Ports,
		corev1.ContainerPort{Name: "control", ContainerPort: config.PortControl},
		corev1.ContainerPort{Name: "fabric", ContainerPort: config.PortFabric})
	ordinary := memory + volumeHeadroom // bytes of ordinary memory in volumes
	if page := hugePageBytes(spec.RDMA); page > 0 {
		ordinary = volumeHeadroom
		c.Args = append(c.Args, "--state-dir="+config.StateDir)
		name, medium := hugePages(spec.RDMA.HugePages)
		// The lock table is a file of its own: whole pages, too.
		size := resource.NewQuantity((memory+page-1)/page*page+(lockTableBytes+page-1)/page*page, resource.BinarySI)
		demand(c, name, *size)
		mount(p, "data", config.DataDir, medium, size)
		mount(p, "state", config.StateDir, corev1.StorageMediumMemory, resource.NewQuantity(ordinary, resource.BinarySI))
	} else if spec.Persistence != nil {
		keepOnDisk(p, pool)
	} else {
		mount(p, "data", config.DataDir, corev1.StorageMediumMemory, resource.NewQuantity(ordinary, resource.BinarySI))
	}
	all := *resource.NewQuantity(ordinary+processHeadroom, resource.BinarySI)
	demanded := c.Resources
	c.Resources = resources(
		corev1.ResourceList{corev1.ResourceCPU: defaultCPU(spec.Transport), corev1.ResourceMemory: all, corev1.ResourceEphemeralStorage: logBytes},
		corev1.ResourceList{corev1.ResourceMemory: all}, spec.Pod.Resources)
	for name, n := range demanded.Limits {
		demand(c, name, n)
	}
	limit := c.Resources.Limits[corev1.ResourceMemory]
	c.Env = append(c.Env, heapLimit(limit.Value()-ordinary-config.MemoryServerOutside))
	if spec.Transport == dmv1.TransportRDMA {
		c.Args = append(c.Args, "--on-chip", "--reserve") // a NIC pins all pages at once
		rdma(p, spec.RDMA)
	}
	p.Annotations[dmv1.AnnotationImage] = image
	KeepMemoryPod(p, pool, "", false)
	return p
}

// VolumeOf is the number of the volume that a memory pod was made for, as its arguments say, which
// nobody can change; -1 if they do not say.
func VolumeOf(p *corev1.Pod) int {
	for i := range p.Spec.Containers {
		for _, arg := range p.Spec.Containers[i].Args {
			if text, is := strings.CutPrefix(arg, volumeFlag); is && p.Spec.Containers[i].Name == dmv1.ComponentMemory {
				if id, err := strconv.Atoi(text); err == nil && id > 0 && id <= MaxVolume+1 {
					return id - 1
				}
			}
		}
	}
	return -1
}

// volumeFlag says which volume a memory server has, counted from 1 on.
const volumeFlag = "--id="

// ImageProbe is a pod that finds out whether a node can have the image that a memory server of a
// pool is to get: it does nothing but start its program and end. It has what a kubelet pulls images
// with, as the server's pod has it, which cannot be given other pull secrets, and what admission
// looks at, and lies on the very node of the server: where the image of one node can be had, that
// of another one may not. The scheduler is not asked: it would keep the pod from a node that is
// cordoned. No pool has pods of such a name: pools have no dots in theirs.
func ImageProbe(pool *dmv1.DMMemoryPool, server *corev1.Pod, id int, image string) *corev1.Pod {
	p := pod(pool.Name, pool.Namespace, dmv1.ComponentProbe, id, pool.Spec.Pod, image, []string{"memserver", "--help"})
	p.Name, p.Annotations[dmv1.AnnotationImage] = PodName(pool.Name+".image", id), image
	s, c := &p.Spec, &p.Spec.Containers[0]
	s.NodeName, s.RestartPolicy, s.TerminationGracePeriodSeconds = server.Spec.NodeName, corev1.RestartPolicyNever, ptr.To(int64(1))
	s.ImagePullSecrets, s.Tolerations = server.Spec.ImagePullSecrets, server.Spec.Tolerations
	for _, of := range server.Spec.Containers {
		if of.Name == dmv1.ComponentMemory {
			c.ImagePullPolicy = of.ImagePullPolicy
			if pool.Spec.Pod.Patch != nil { // it may say as whom pods may run in this namespace
				s.SecurityContext, c.SecurityContext = server.Spec.SecurityContext.DeepCopy(), of.SecurityContext.DeepCopy()
			}
		}
	}
	s.Hostname, s.Subdomain, s.Volumes, s.NodeSelector, s.Affinity, s.TopologySpreadConstraints = "image", "", nil, nil, nil, nil
	c.VolumeMounts, c.Ports, c.StartupProbe, c.LivenessProbe, c.ReadinessProbe = nil, nil, nil, nil, nil
	// A quota of the namespace may refuse pods that do not say all of it.
	c.Resources = resources(
		corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi"), corev1.ResourceEphemeralStorage: resource.MustParse("1Mi")},
		corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi"), corev1.ResourceEphemeralStorage: logBytes}, dmv1.Resources{})
	return p
}

// heapLimit tells Go's runtime how large its heap may become. Without it the heap grows to twice
// what lives, and a burst of garbage may end the container, although nothing holds that memory.
func heapLimit(bytes int64) corev1.EnvVar {
	return corev1.EnvVar{Name: "GOMEMLIMIT", Value: strconv.FormatInt(max(bytes, leastHeap), 10)}
}

// lockTableBytes is the size of a memory server's lock table.
const lockTableBytes = 256 << 10

// fabricFlag is the flag with the address at which clients reach the memory.
func fabricFlag(t dmv1.Transport) string {
	if t == dmv1.TransportRDMA {
		return "rdma"
	}
	return "fabric"
}

// mount gives the container an empty directory in memory.
func mount(p *corev1.Pod, name, path string, medium corev1.StorageMedium, size *resource.Quantity) {
	c := &p.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path})
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium, SizeLimit: size},
	}})
}

// ChunkSize of a pool in bytes.
func ChunkSize(pool *dmv1.DMMemoryPool) int64 {
	if pool.Spec.ChunkSize == nil {
		return 8 << 20
	}
	return pool.Spec.ChunkSize.Value()
}
