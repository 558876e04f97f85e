package build

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// envPodUID is the variable from which a copy's arguments have the UID of its pod.
const envPodUID = "POD_UID"

// MemoryCopy is the pod of a further copy of a volume. Its process begins with an empty memory
// and serves nothing until a view names it, so it has arguments that an image which knows no
// copies refuses to start with. It never lies on a node of another copy, and in another zone if
// there is one; spread of the pool may insist on it. Its memory may be on a disk: views name
// the claim then, and the pod comes and goes.
func MemoryCopy(pool *dmv1.DMMemoryPool, id, volume int, image string, claim *corev1.PersistentVolumeClaim) *corev1.Pod {
	p := memoryPod(pool, id, volume, image)
	p.Labels[dmv1.LabelVolume] = strconv.Itoa(volume)
	// Nothing is lost with it, and the budget does not count it, until a view names it.
	KeepMemoryPod(p, pool, "", true)
	c := &p.Spec.Containers[0]
	name := "$(" + envPodUID + ")"
	if claim != nil {
		name = string(claim.UID)
	} else {
		c.Env = append(c.Env, corev1.EnvVar{Name: envPodUID, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}})
	}
	c.Args = append(c.Args, "--pod="+name, "--mirror="+mirrorAddress)
	c.Ports = append(c.Ports, corev1.ContainerPort{Name: "mirror", ContainerPort: config.PortMirror})
	copies := selector(pool.Name, dmv1.ComponentMemory)
	copies[dmv1.LabelVolume] = strconv.Itoa(volume)
	apart := func(topology string) corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{TopologyKey: topology, LabelSelector: &metav1.LabelSelector{MatchLabels: copies}}
	}
	affinity := &corev1.Affinity{}
	if p.Spec.Affinity != nil {
		affinity = p.Spec.Affinity.DeepCopy()
	}
	if affinity.PodAntiAffinity == nil {
		affinity.PodAntiAffinity = &corev1.PodAntiAffinity{}
	}
	a := affinity.PodAntiAffinity
	a.RequiredDuringSchedulingIgnoredDuringExecution = append(slices.Clone(a.RequiredDuringSchedulingIgnoredDuringExecution), apart(corev1.LabelHostname))
	a.PreferredDuringSchedulingIgnoredDuringExecution = slices.Clone(a.PreferredDuringSchedulingIgnoredDuringExecution)
	all := domains(pool.Spec.Spread)
	if !slices.ContainsFunc(all, func(d domain) bool { return d.label == corev1.LabelTopologyZone }) {
		all = append(all, domain{corev1.LabelTopologyZone, dmv1.SpreadPreferred})
	}
	for _, d := range all {
		if d.rule == dmv1.SpreadRequired {
			a.RequiredDuringSchedulingIgnoredDuringExecution = append(a.RequiredDuringSchedulingIgnoredDuringExecution, apart(d.label))
			continue
		}
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.WeightedPodAffinityTerm{Weight: 100, PodAffinityTerm: apart(d.label)})
	}
	p.Spec.Affinity = affinity
	return p
}
