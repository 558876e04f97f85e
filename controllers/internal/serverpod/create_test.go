package serverpod

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/report"
	"github.com/dmindex/dmindex/pkg/logs"
	"github.com/dmindex/dmindex/pkg/profile"
)

// TestPodsProfile: servers serve profiles only if the operator does.
func TestPodsProfile(t *testing.T) {
	for _, on := range []bool{false, true} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "server"}}}}
		b := reconciler.Base{Pprof: on}
		if err := Equip(&b, &dmv1.DMComputePool{}, pod, &dmv1.PodTemplate{}); err != nil {
			t.Fatal(err)
		}
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
		b := reconciler.Base{Logs: c}
		if err := Equip(&b, &dmv1.DMComputePool{}, pod, &dmv1.PodTemplate{}); err != nil {
			t.Fatal(err)
		}
		if got := pod.Spec.Containers[0].Env; !slices.Equal(got, want) {
			t.Errorf("%+v: %v, want %v", c, got, want)
		}
	}
	f(logs.Config{})
	f(logs.Config{Level: "debug"}, corev1.EnvVar{Name: logs.EnvLevel, Value: "debug"})
	f(logs.Config{Level: "warn", Format: logs.JSON}, corev1.EnvVar{Name: logs.EnvLevel, Value: "warn"}, corev1.EnvVar{Name: logs.EnvFormat, Value: "json"})
}

// TestReservedIsTold: what a template has of the operator's labels and annotations is named once.
func TestReservedIsTold(t *testing.T) {
	notes := &operatortest.LastNote{}
	b := reconciler.Base{Events: notes, Logged: report.NewLogged()}
	template := &dmv1.PodTemplate{Labels: map[string]string{"team": "a"}}
	if TellReserved(&b, &dmv1.DMMemoryPool{}, template); notes.Note != "" {
		t.Errorf("of a good template: %s", notes.Note)
	}
	template.Annotations = map[string]string{dmv1.AnnotationLeaving: "now"}
	if TellReserved(&b, &dmv1.DMMemoryPool{}, template); !strings.Contains(notes.Note, "without dmindex.io/leaving of spec.pod") {
		t.Errorf("of a bad one: %q", notes.Note)
	}
	notes.Note = ""
	if TellReserved(&b, &dmv1.DMMemoryPool{}, template); notes.Note != "" {
		t.Errorf("again: %s", notes.Note)
	}
}
