package controllers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dmindex/dmindex/pkg/profile"
)

// TestPodsProfile: servers serve profiles only if the operator does.
func TestPodsProfile(t *testing.T) {
	for _, on := range []bool{false, true} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "server"}}}}
		b := base{pprof: on}
		b.letProfile(pod)
		found := false
		for _, e := range pod.Spec.Containers[0].Env {
			found = found || e.Name == profile.Env && e.Value == "true"
		}
		if found != on {
			t.Errorf("with --pprof=%v the environment is %v", on, pod.Spec.Containers[0].Env)
		}
	}
}
