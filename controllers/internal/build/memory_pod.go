package build

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// What a memory server takes beside its region: lock table and ledger in the same volume, then the process.
const (
	volumeHeadroom  = 64 << 20
	processHeadroom = 192 << 20
)

// MemoryPod is the pod of a memory server. Its region is a file in a volume of memory, which lives as long as the pod: a
// container that restarts finds it again.
func MemoryPod(pool *dmv1.DMMemoryPool, id int, image string) *corev1.Pod {
	spec := pool.Spec.MemoryServers
	memory := spec.Memory.Value()
	p := pod(pool.Name, pool.Namespace, dmv1.ComponentMemory, id, spec.Pod, image, []string{
		"memserver",
		fmt.Sprintf("--id=%d", id+1),
		"--data-dir=" + config.DataDir,
		fmt.Sprintf("--memory=%d", memory),
		fmt.Sprintf("--chunk-size=%d", ChunkSize(pool)),
		fmt.Sprintf("--control=:%d", config.PortControl),
		fmt.Sprintf("--fabric=:%d", config.PortFabric),
		fmt.Sprintf("--metrics=:%d", config.PortMetrics),
		"--tls-dir=" + config.TLSDir,
	})
	volume := resource.NewQuantity(memory+volumeHeadroom, resource.BinarySI)
	all := *resource.NewQuantity(memory+volumeHeadroom+processHeadroom, resource.BinarySI)
	c := &p.Spec.Containers[0]
	c.Ports = append(c.Ports,
		corev1.ContainerPort{Name: "control", ContainerPort: config.PortControl},
		corev1.ContainerPort{Name: "fabric", ContainerPort: config.PortFabric})
	c.Resources = resources(
		corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: all},
		corev1.ResourceList{corev1.ResourceMemory: all}, spec.Pod.Resources)
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: config.DataDir})
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: volume},
	}})
	return p
}

// ChunkSize of a pool in bytes.
func ChunkSize(pool *dmv1.DMMemoryPool) int64 {
	if pool.Spec.ChunkSize == nil {
		return 8 << 20
	}
	return pool.Spec.ChunkSize.Value()
}
