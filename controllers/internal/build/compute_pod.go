package build

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// ComputePod is the pod of a compute server of an index. ordinal is the pool's position in the
// index; identity is that of the index at this time.
func ComputePod(pool *dmv1.DMComputePool, ordinal, id int, identity, image, template string) *corev1.Pod {
	spec := pool.Spec.ComputeServers
	p := pod(pool.Name, pool.Namespace, dmv1.ComponentCompute, id, spec.Pod, image, []string{
		"computeserver",
		fmt.Sprintf("--id=%d", ComputeServerID(ordinal, id)),
		"--index-config=" + config.IndexFile,
		fmt.Sprintf("--resp=:%d", config.PortRESP),
		fmt.Sprintf("--rpc=:%d", config.PortRPC),
		fmt.Sprintf("--metrics=:%d", config.PortMetrics),
		"--tls-dir=" + config.TLSDir,
		"--password-file=" + config.PasswordFile,
		"--name=" + PodName(pool.Name, id),
	})
	wider(p, spec.Spread, pool.Name, dmv1.ComponentCompute)
	p.Labels[dmv1.LabelIndex] = pool.Spec.IndexName
	p.Annotations[dmv1.AnnotationIdentity] = identity
	p.Annotations[dmv1.AnnotationTemplate] = template
	p.Annotations[dmv1.AnnotationImage] = image
	c := &p.Spec.Containers[0]
	c.Ports = append(c.Ports,
		corev1.ContainerPort{Name: "resp", ContainerPort: config.PortRESP},
		corev1.ContainerPort{Name: "rpc", ContainerPort: config.PortRPC})
	memory := resource.MustParse("256Mi")
	if spec.Transport == dmv1.TransportRDMA {
		memory = resource.MustParse("1Gi") // it is the limit, too
	}
	if spec.Cache != nil {
		c.Args = append(c.Args, fmt.Sprintf("--cache=%d", spec.Cache.Value()))
		memory.Add(*spec.Cache)
		memory.Add(*spec.Cache) // the garbage collector lets the heap grow to twice what lives
	}
	if n := spec.Settings.MaxSessions; n > 0 {
		c.Args = append(c.Args, fmt.Sprintf("--max-sessions=%d", n))
	}
	limit := memory.DeepCopy()
	if spec.Transport != dmv1.TransportRDMA {
		limit.Add(*resource.NewQuantity(config.ComputeServerClients+config.ComputeServerOutside, resource.BinarySI))
	}
	c.Resources = resources(
		corev1.ResourceList{corev1.ResourceCPU: defaultCPU(spec.Transport), corev1.ResourceMemory: memory, corev1.ResourceEphemeralStorage: logBytes},
		corev1.ResourceList{corev1.ResourceMemory: limit}, spec.Pod.Resources)
	c.VolumeMounts = append(c.VolumeMounts,
		corev1.VolumeMount{Name: "index", MountPath: path.Dir(config.IndexFile), ReadOnly: true},
		corev1.VolumeMount{Name: "auth", MountPath: path.Dir(config.PasswordFile), ReadOnly: true})
	p.Spec.Volumes = append(p.Spec.Volumes,
		corev1.Volume{Name: "index", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: ConfigMapName(pool.Spec.IndexName)},
		}}},
		authVolume(pool.Spec.IndexName))
	c.Env = append(c.Env,
		corev1.EnvVar{Name: config.EnvGuardDir, Value: config.GuardDir},
		corev1.EnvVar{Name: config.EnvDefaultACL, Value: config.DefaultACL},
		corev1.EnvVar{Name: config.EnvUsersACL, Value: config.UsersACL},
		corev1.EnvVar{Name: config.EnvObjectsACL, Value: config.ObjectsACL})
	mount(p, "guard", config.GuardDir, corev1.StorageMediumMemory, resource.NewQuantity(guardBytes, resource.BinarySI))
	if spec.Transport == dmv1.TransportRDMA {
		c.Args = append(c.Args, "--transport="+config.TransportIBV)
		if hugePageBytes(spec.RDMA) > 0 {
			name, _ := hugePages(spec.RDMA.HugePages)
			demand(c, name, *resource.NewQuantity(max(bufferBytes, hugePageBytes(spec.RDMA)), resource.BinarySI))
		}
		rdma(p, spec.RDMA)
	}
	all := c.Resources.Limits[corev1.ResourceMemory]
	c.Env = append(c.Env, heapLimit(all.Value()-config.ComputeServerOutside))
	return p
}

// authVolume has the files that say who may use an index. The password in the clear is for images
// that know no ACL files. The others may be missing: the operator makes two of them later, and one
// is of whoever administers the index.
func authVolume(index string) corev1.Volume {
	source := func(secret, key, file string, optional bool) corev1.VolumeProjection {
		return corev1.VolumeProjection{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: secret},
			Items:                []corev1.KeyToPath{{Key: key, Path: path.Base(file)}},
			Optional:             ptr.To(optional),
		}}
	}
	return corev1.Volume{Name: "auth", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{
			source(ConnectionName(index), KeyPassword, config.PasswordFile, false),
			source(AuthName(index), KeyDefaultACL, config.DefaultACL, true),
			source(UsersName(index), KeyUsersACL, config.UsersACL, true),
			source(ObjectsName(index), KeyUsersACL, config.ObjectsACL, true),
		},
		DefaultMode: ptr.To(int32(0o440)),
	}}}
}

// guardBytes is how large the directory may get that a compute server locks; nothing is written
// there.
const guardBytes = 64 << 10

// bufferBytes is what a compute server has of huge pages, for the buffers of its sessions; ordinary
// ones do for the rest.
const bufferBytes = 64 << 20
