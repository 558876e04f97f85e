package podstate

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
)

// ID is the number of a pod in its pool; -1 if it has none. It is read from the name, which
// nobody can change. With another label a memory server would seem to be a new one beside itself.
func ID(p *corev1.Pod) int { return NumberIn(p.Name) }

// NumberIn is the number at the end of the name of a pod or a claim; -1 if there is none.
func NumberIn(name string) int {
	id, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if err != nil {
		return -1
	}
	return id
}

// NextID is the number that a pool gives to its next pod. Numbers of pods that are there count too:
// an annotation may have been lost with a backup.
func NextID(pool client.Object, pods []*corev1.Pod) int {
	next, err := strconv.Atoi(pool.GetAnnotations()[dmv1.AnnotationNextID])
	if err != nil {
		next = 0
	}
	for _, p := range pods {
		next = max(next, ID(p)+1)
	}
	return next
}

// NextVolume is the number that a memory pool gives to its next volume, and to the pod that it
// makes with it.
func NextVolume(pool client.Object, pods []*corev1.Pod) int {
	return NextID(pool, slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return ID(p) > build.MaxVolume }))
}

// VolumeOf is the number of the volume that a memory pod is a copy of; -1 if it is of none. Neither
// names nor arguments of a pod can be changed, labels can.
func VolumeOf(p *corev1.Pod) int {
	if id := ID(p); id <= build.MaxVolume {
		return id
	}
	return build.VolumeOf(p)
}
