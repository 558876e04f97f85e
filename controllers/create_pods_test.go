package controllers

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dmindex/dmindex/pkg/logs"
	"github.com/dmindex/dmindex/pkg/profile"
)

// TestPodsProfile: servers serve profiles only if the operator does.
func TestPodsProfile(t *testing.T) {
	for _, on := range []bool{false, true} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "server"}}}}
		b := base{pprof: on}
		b.equip(pod)
		found := false
		for _, e := range pod.Spec.Containers[0].Env {
			found = found || e.Name == profile.Env && e.Value == "true"
		}
		if found != on {
			t.Errorf("with --pprof=%v the environment is %v", on, pod.Spec.Containers[0].Env)
		}
	}
}

// TestPodsLog: new servers log as the operator says, and as their images do if it says nothing.
func TestPodsLog(t *testing.T) {
	f := func(c logs.Config, want ...corev1.EnvVar) {
		t.Helper()
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "server"}}}}
		b := base{logs: c}
		b.equip(pod)
		if got := pod.Spec.Containers[0].Env; !slices.Equal(got, want) {
			t.Errorf("%+v: %v, want %v", c, got, want)
		}
	}
	f(logs.Config{})
	f(logs.Config{Level: "debug"}, corev1.EnvVar{Name: logs.EnvLevel, Value: "debug"})
	f(logs.Config{Level: "warn", Format: logs.JSON}, corev1.EnvVar{Name: logs.EnvLevel, Value: "warn"}, corev1.EnvVar{Name: logs.EnvFormat, Value: "json"})
}
