package build

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// Claim is the claim of the disk that keeps what a memory server of a pool with persistence holds.
// It has the number and the name of the server's pod, and its label says of which volume it has a
// copy. It goes with the pool, which does not go as long as an index has memory there; it does not
// go with its pod.
func Claim(pool *dmv1.DMMemoryPool, id, volume int) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: meta(PodName(pool.Name, id), pool.Namespace, selector(pool.Name, dmv1.ComponentMemory))}
	c.Labels[dmv1.LabelServerID] = strconv.Itoa(id)
	if volume != id {
		c.Labels[dmv1.LabelVolume] = strconv.Itoa(volume)
	}
	c.Spec = corev1.PersistentVolumeClaimSpec{
		AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		StorageClassName: pool.Spec.Persistence.StorageClassName,
		Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: DiskBytes(pool)}},
	}
	return c
}

// DiskBytes is how much disk a memory server of the pool asks for. memserver.Config.PersistDir says
// what it needs; the rest is for the file system.
func DiskBytes(pool *dmv1.DMMemoryPool) resource.Quantity {
	if size := pool.Spec.Persistence.Size; size != nil {
		return *size
	}
	return *resource.NewQuantity(4*pool.Spec.Memory.Value()+1<<30, resource.BinarySI)
}

// slowestDisk is how many bytes of a disk a server that starts reads each second at least. One that
// reads longer is restarted, and begins again.
const slowestDisk = 16 << 20

// keepOnDisk has the server of a pod keep its region in the claim of the pod's name, and gives it
// time to read it back: a checkpoint of the memory and a log of twice the memory. Why it does not
// open a disk it says where the operator sees it. Annotations of the pod tell the server about the
// disk: as variables, which each start of its container reads anew.
func keepOnDisk(p *corev1.Pod, pool *dmv1.DMMemoryPool) {
	c := &p.Spec.Containers[0]
	c.Args = append(c.Args, "--persist-sync="+string(pool.Spec.Persistence.Sync))
	const name = "disk"
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: config.DiskDir})
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: p.Name},
	}})
	c.Env = append(c.Env, annotated(config.EnvPersistExisting, dmv1.AnnotationUsed), annotated(config.EnvPersistAcceptLoss, dmv1.AnnotationAcceptLoss))
	c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	c.StartupProbe.FailureThreshold += int32(3 * pool.Spec.Memory.Value() / slowestDisk / int64(c.StartupProbe.PeriodSeconds))
}

// annotated is a variable that has what an annotation of the pod says; empty if there is none.
func annotated(name, annotation string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['" + annotation + "']"}}}
}

// dataFlag says where a memory server has its region.
func dataFlag(spec *dmv1.MemoryServers) string {
	if spec.Persistence != nil {
		return "--persist=" + config.PersistDir
	}
	return "--data-dir=" + config.DataDir
}
