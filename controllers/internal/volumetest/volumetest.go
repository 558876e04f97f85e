// Package volumetest has volumes for the tests of several rooms of the operator.
package volumetest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/volume"
)

// CopyPod is a pod of pool "pool" that was made for a volume; its UID is "u" and its number.
func CopyPod(number, volume int) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.Namespace, p.UID = build.PodName("pool", number), "ns", types.UID(fmt.Sprint("u", number))
	p.Spec.Containers = []corev1.Container{{Name: dmv1.ComponentMemory, Args: []string{"memserver", fmt.Sprintf("--id=%d", volume+1)}}}
	return p
}

// ViewOf is a view of pods of pool "pool".
func ViewOf(number uint64, pods ...int) volume.View {
	v := volume.View{Number: number}
	for i, n := range pods {
		p := &volume.Proc{Pod: build.PodName("pool", n), UID: fmt.Sprint("u", n), Process: 1}
		switch {
		case i == 0:
			v.Primary = *p
		case i == 1 && n >= 0:
			v.Backup = p
		case i == 2:
			v.Earlier = p
		}
	}
	return v
}
