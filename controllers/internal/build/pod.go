package build

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// User is who the servers run as.
const User = 65532

const tlsVolume = "tls"

// pod is what pods of memory and compute servers have in common. The container is still to be
// completed.
func pod(pool, namespace, component string, id int, t dmv1.PodTemplate, image string, args []string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta(PodName(pool, id), namespace, selector(pool, component))}
	p.Labels = beside(p.Labels, t.Labels)
	p.Labels[dmv1.LabelServerID] = strconv.Itoa(id)
	p.Annotations = beside(map[string]string{}, t.Annotations)
	p.Spec = corev1.PodSpec{
		Hostname:                      p.Name,
		Subdomain:                     pool,
		AutomountServiceAccountToken:  ptr.To(false),
		EnableServiceLinks:            ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To(int64(60)),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   ptr.To(true),
			RunAsUser:      ptr.To(int64(User)),
			RunAsGroup:     ptr.To(int64(User)),
			FSGroup:        ptr.To(int64(User)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name:  component,
			Image: image,
			Args:  args,
			Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: config.PortMetrics}},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false),
				ReadOnlyRootFilesystem:   ptr.To(true),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			// five minutes: reserving much memory takes its time
			StartupProbe:   probe("/healthz", 2, 150),
			LivenessProbe:  probe("/healthz", 10, 6),
			ReadinessProbe: probe("/readyz", 2, 2),
			VolumeMounts:   []corev1.VolumeMount{{Name: tlsVolume, MountPath: config.TLSDir, ReadOnly: true}},
		}},
		Volumes: []corev1.Volume{secretVolume(tlsVolume, ServerTLSName(pool))},
	}
	useTemplate(&p.Spec, &t)
	p.Spec.TopologySpreadConstraints = spread(pool, component, t.TopologySpreadConstraints)
	return p
}

// useTemplate puts what a template says into a pod with one container, but for labels, annotations
// and resources.
func useTemplate(p *corev1.PodSpec, t *dmv1.PodTemplate) {
	p.NodeSelector, p.Tolerations, p.Affinity, p.TopologySpreadConstraints = t.NodeSelector, t.Tolerations, t.Affinity, t.TopologySpreadConstraints
	p.PriorityClassName, p.SchedulerName, p.RuntimeClassName, p.ServiceAccountName = t.PriorityClassName, t.SchedulerName, t.RuntimeClassName, t.ServiceAccountName
	p.ImagePullSecrets, p.HostAliases, p.DNSConfig = t.ImagePullSecrets, t.HostAliases, t.DNSConfig
	c := &p.Containers[0]
	c.ImagePullPolicy, c.Env = t.ImagePullPolicy, slices.Clone(t.Env)
}

func probe(path string, period, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("metrics")}},
		PeriodSeconds:    period,
		FailureThreshold: failures,
		TimeoutSeconds:   2,
	}
}

func secretVolume(name, secret string, items ...corev1.KeyToPath) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: secret, Items: items, DefaultMode: ptr.To(int32(0o440))},
	}}
}

// resources are defaults, overlaid with what the template says.
func resources(requests, limits corev1.ResourceList, t dmv1.Resources) corev1.ResourceRequirements {
	overlay := func(base, over corev1.ResourceList) corev1.ResourceList {
		all := corev1.ResourceList{}
		maps.Copy(all, base)
		maps.Copy(all, over)
		if len(all) == 0 {
			return nil
		}
		return all
	}
	r := corev1.ResourceRequirements{Requests: overlay(requests, t.Requests), Limits: overlay(limits, t.Limits)}
	for name, limit := range r.Limits {
		request, there := r.Requests[name]
		if _, given := t.Requests[name]; there && !given && request.Cmp(limit) > 0 {
			r.Requests[name] = limit // a default request never exceeds a given limit
		}
	}
	for name, request := range t.Requests {
		limit, there := r.Limits[name]
		if _, given := t.Limits[name]; there && !given && request.Cmp(limit) > 0 {
			r.Limits[name] = request // nor a given request a default limit
		}
	}
	return r
}
